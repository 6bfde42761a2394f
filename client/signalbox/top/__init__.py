"""Live view in a terminal for ``signalbox top``, with Textual. Needs the extra ``top``."""
