"""The commands of ``signalbox``, and how they show what they found."""
