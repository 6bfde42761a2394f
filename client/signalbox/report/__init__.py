"""``signalbox report``: one self-contained HTML file, of a running controller or of a support bundle."""
