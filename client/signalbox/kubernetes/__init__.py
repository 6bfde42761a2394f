"""Training jobs of a Kubernetes cluster: ``signalbox kubernetes`` keeps those that are annotated registered.

``kinds`` and ``announcing`` make job specs of API objects, ``following`` decides what is kept registered, ``operator``
watches the cluster with kopf, an optional dependency.
"""
