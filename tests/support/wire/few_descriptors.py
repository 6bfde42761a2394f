"""Run ``signalbox serve`` with N file descriptors at most: python -m tests.support.wire.few_descriptors N OPTIONS."""

import resource
import sys

from signalbox.__main__ import main

if __name__ == "__main__":
    most = int(sys.argv.pop(1))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, most))
    sys.argv.insert(1, "serve")
    main()
