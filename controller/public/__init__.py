"""What other distributions may import of the controller: the names in the modules of this folder, and no other.

``problems`` is the input of the planner, ``plans`` are its answers, ``wirings`` are those for optical circuits. Nothing
in the controller imports this folder.
"""
