"""Report for ``signalbox report``: one self-contained HTML file, from a controller or a support bundle.

``gathered`` reads the state, ``page`` describes it, ``drawing`` draws it as SVG."""
