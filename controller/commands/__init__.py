"""Commands of ``signalbox`` that need the planner, the configuration or the saved state.

``serving`` has ``signalbox serve``, and adds all commands of this package to those of the client: ``state`` for saved
jobs, ``token``, ``bundle`` for support, ``verify`` for plans with proofs.
"""
