"""The API over gRPC. Its C++ core writes its own lines to stderr, which say less than our errors: off, unless the
user asks for them with GRPC_VERBOSITY. It is read when grpc is imported, which only this package does."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
