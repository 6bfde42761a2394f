"""Keep the annotated training jobs of a Kubernetes cluster registered, for ``signalbox kubernetes``.

``announcing`` derives job specs from Kubernetes objects, ``following`` decides which jobs are kept registered, and
``operator`` watches the cluster with kopf, an optional dependency."""
