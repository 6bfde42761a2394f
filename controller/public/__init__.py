"""Names that other distributions may import of the controller; they import no others.

``problems`` is the input of the planner, ``plans`` are its answers, ``wirings`` are those for optical circuits. Nothing
in the controller imports this folder.
"""
