"""The API over gRPC. Its C++ core writes lines of its own to stderr, which say less than our errors: off, unless the
user asks for them with GRPC_VERBOSITY. It is read when grpc is imported, which only this package does."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
