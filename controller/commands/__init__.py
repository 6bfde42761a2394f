"""Commands that need the planner, the configuration or saved state."""
