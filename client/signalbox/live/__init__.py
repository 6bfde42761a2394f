"""What people look at: the state of a controller, kept up to date, and pictures of it as data. For ``signalbox web``,
``top`` and ``report``; nothing here draws."""
