"""What jobs and operators need to talk to a Signalbox controller, and what both sides must agree on."""
