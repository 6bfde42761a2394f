"""Live page for ``signalbox web``, with NiceGUI. Needs the extra ``web``.

``board`` is shared by all viewers, ``page`` serves one viewer, ``asking`` calls the controller for it. ``guard``
decides which requests are answered. ``charts`` and the modules that it uses make the options of ECharts."""
