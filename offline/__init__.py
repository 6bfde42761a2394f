"""Plans, simulations and designs of networks on paper, with the planner of the controller."""
