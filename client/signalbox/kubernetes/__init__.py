"""Training jobs of a Kubernetes cluster: those that are annotated are kept registered."""
