"""The commands that ``controller.cli`` does not hold itself, and how all of them show what they found."""
