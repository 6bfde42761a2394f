"""``signalbox top``: the live view in a terminal, with Textual. Optional: the extra ``top``."""
