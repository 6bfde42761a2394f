"""Report for ``signalbox report``: one self-contained HTML file, from a controller or a support bundle.

``gathered`` collects the data, ``page`` writes the page, ``drawing`` draws the SVG pictures."""
