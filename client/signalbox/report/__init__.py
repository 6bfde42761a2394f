"""Report for ``signalbox report``: one self-contained HTML file, from a controller or a support bundle.

``gathered`` and ``bundle`` read the state, ``page`` and ``jobs`` describe it, ``drawing`` draws it as SVG."""
