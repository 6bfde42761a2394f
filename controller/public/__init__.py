"""Names of the controller that other distributions may import; they import no other names of the controller.

``problems``: the input of the planner. ``plans``: its answers. ``wirings``: the search for optical circuits.
``contention``: jobs in time on shared links. Nothing in the controller imports this folder.
"""
