"""Job specs from what frameworks write: one module per format, which share ``calls`` and ``specs``."""
