"""Keep the annotated training jobs of a Kubernetes cluster registered, for ``signalbox kubernetes``.

``announcing`` makes job specs from API objects, ``following`` decides which jobs are kept registered,
``operator`` watches the cluster with kopf, an optional dependency."""
