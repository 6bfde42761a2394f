"""``signalbox web``: the live page, with NiceGUI. Optional: the extra ``web``."""
