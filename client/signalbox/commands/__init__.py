"""The commands of ``signalbox`` that ask a controller, and how they show what they found."""
