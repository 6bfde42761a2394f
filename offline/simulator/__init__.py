"""What routes do to training: an event-driven fluid model of many jobs on one fabric."""
