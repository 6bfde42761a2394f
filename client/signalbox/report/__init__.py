"""``signalbox report``: one self-contained HTML file about a running controller or a support bundle.

``gathered`` and ``bundle`` read the state, ``page`` and ``jobs`` say what it means, ``drawing`` draws it as SVG.
"""
