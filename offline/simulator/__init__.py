"""The effect of routes on training: an event-driven fluid model of many jobs on one fabric.

docs/explanation/simulator.md has the model. ``training`` runs the jobs, ``fluid`` is the network, and ``routing`` has
the routes in force and the controller that replaces them.
"""
