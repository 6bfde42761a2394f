"""Live page for ``signalbox web``, with NiceGUI. Needs the extra ``web``.

``board`` is shared by all viewers, ``page`` serves one viewer, ``asking`` calls the controller for it. ``serving`` is
the server, and decides which requests are answered. ``charts`` and ``beside`` make the options of ECharts."""
