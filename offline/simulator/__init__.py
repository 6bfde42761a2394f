"""The effect of routes on training: an event-driven fluid model of many jobs on one fabric.

docs/explanation/simulator.md has the model. ``training`` runs the jobs, ``fluid`` is the network, ``routing`` says
which routes run and when they are replaced.
"""
