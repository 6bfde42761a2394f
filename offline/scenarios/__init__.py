"""The planner without a network: fabrics and jobs from files or numbers instead of switches and gRPC."""
