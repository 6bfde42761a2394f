"""The commands behind ``controller.cli``, and how they show what they found."""
