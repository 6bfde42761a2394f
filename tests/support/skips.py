"""Tests that may be skipped, each with a requirement that a machine may lack. Any other skip is a failure.

``tests/conftest.py`` passes every report of pytest to this module. Programs that ``scripts/bootstrap.sh --libraries``
installs may be missing only where ``SIGNALBOX_LIBRARIES`` is ``no`` (``tests/support/lab/needs.py``)."""

from collections.abc import Mapping

import pytest

MAY_SKIP: Mapping[str, str] = {
    "tests/lab/test_compose.py": "debootstrap",
    "tests/lab/test_joining_stage.py": "PyTorch",
    "tests/lab/test_libraries.py": "PyTorch, Open MPI",
    "tests/lab/test_mptcp.py": "a kernel with Multipath TCP, iperf3, mptcpize",
    "tests/lab/test_slurm.py": "Slurm",
    "tests/lab/test_slurm_fabric.py": "Slurm, Open MPI",
    "tests/lab/test_torch.py": "PyTorch",
    "tests/lab/test_web.py": "Chromium",
    "tests/unit/client/test_models.py::test_models_send_what_each_published_file_says": "WORKLOADS, published files",
    "tests/unit/client/test_socket_bytes.py::test_ipv6_is_left_out": "IPv6",
    "tests/unit/deploy/test_compose.py": "docker-compose",
    "tests/unit/deploy/test_systemd.py": "systemd-analyze",
    "tests/wire/test_api_tls.py::test_a_token_is_not_accepted_where_it_could_be_read_on_its_way": "a network",
    "tests/wire/test_circuits.py": "Chromium",
    "tests/wire/test_install.py": "another version of Python",
    "tests/wire/test_report.py": "Chromium",
    "tests/wire/test_slurm_hooks.py::test_a_disk_that_is_full_leaves_no_part_of_a_file": "root",
    "tests/wire/test_torch.py": "PyTorch",
    "tests/wire/test_web.py": "Chromium",
}
"""Requirement whose absence allows a skip, by test file or by single test."""


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure unless ``MAY_SKIP`` has the test."""
    test, _, _ = report.nodeid.partition("[")
    if report.skipped and test not in MAY_SKIP and test.partition("::")[0] not in MAY_SKIP:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} may not be skipped; tests/support/skips.py lists those that may. {why}"
