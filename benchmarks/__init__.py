"""How long the pipeline takes on large fabrics, without root or network: ``make bench``."""
