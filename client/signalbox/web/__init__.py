"""Live page for ``signalbox web``, with NiceGUI. Needs the extra ``web``.

All viewers share a ``board``. A ``page`` serves one viewer; ``asking`` calls the controller on the viewer's behalf.
``serving`` is the server, and decides which requests are answered. ``charts`` and ``beside`` make the options of
ECharts."""
