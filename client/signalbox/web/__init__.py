"""``signalbox web``: the live page, with NiceGUI. Optional: the extra ``web``.

``board`` is what all viewers share, ``page`` is one viewer, ``asking`` asks the controller for it. ``guard`` decides
which requests are answered. ``charts`` and its neighbours make the options of ECharts.
"""
