"""Every file, function, class, option, command, make target, key and metric that README.md and docs name exists."""

import ast
import json
import re
import shlex
import tomllib
from collections.abc import Iterator, Set
from itertools import chain
from pathlib import Path

import pytest

from controller.config import Config
from signalbox.v1 import signalbox_pb2 as pb
from tests.support import repository_names as names
from tests.support.doc_pages import PAGES, ROOT, Page

FOREIGN = {
    *(value.name.removeprefix("ERROR_REASON_") for value in pb.ErrorReason.DESCRIPTOR.values),
    # Open vSwitch, OpenFlow
    *("fail_mode=secure", "flow_limit", "Flow_Table", "max_backoff", "max_backoff=1000", "ovs-vswitchd.log"),
    "--system-id=random",
    *("OFPCR_ROLE_NOCHANGE", "OFPBRC_IS_SLAVE"),
    # etcd
    *("--auto-compaction-retention", "etcd_server_has_leader", "Deadline Exceeded", "ETCDCTL_API=3", "--user root"),
    # gRPC, JSON, networkx, Prometheus, pip, pytest, Hypothesis, Mininet, shell
    *(f"google.rpc.{detail}" for detail in ("BadRequest", "ErrorInfo", "QuotaFailure", "RetryInfo")),
    *("grpc.health.v1.Health", "google.rpc", "grpcio-status", "NOT_SERVING", "null", "networkx.node_link_data"),
    *("process_*", "promtool", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "tmp_path", "--hypothesis-profile=random"),
    *("nice -n -10", "NoNewPrivileges", "ProtectHome", "systemd-analyze security", "unshare -n", "pkill", "killall"),
    *("runbook", "mn -c", *(f"apt {verb}" for verb in ("install", "purge", "remove"))),
    # NCCL and PyTorch
    *("NCCL_ALGO", "NCCL_DEBUG=INFO", "init_process_group", "TORCH_FR_BUFFER_SIZE", "os._exit"),
    *("torch.cuda.set_device", "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    # the published workload files
    *("stage_index", "flow_size"),
    # Slurm, systemd, Kubernetes, containers
    *("network_mode: host", "SlurmUser", "SlurmdTimeout", "TopologyPlugin=topology/tree", "User", "hostNetwork"),
    # YAML, Megatron-LM
    *("!!str", "initialize_model_parallel", "tp-cp-ep-dp-pp", "_allreduce_word_embedding_grads"),
    # files and functions that are not in the repository
    *("built.yaml", "gpt3.yaml", "state.db-shm", "state.db-wal", "state.json.taken-over", "JOB.txt"),
    # names that code must not have
    *("Manager", "Helper", "utils"),
}
"""Code in documents that is not defined in the repository."""

FOREIGN_PROGRAMS = {
    *("mpirun", "mpiexec", "srun", "torchrun", "accelerate"),
    *("apt", "curl", "docker", "docker-compose", "runuser", "systemd-sysusers", "systemd-tmpfiles", "wget"),
    *("etcdctl", "grpcurl", "ip", "openssl", "ovs-appctl", "ovs-ofctl", "ovs-vsctl", "pip", "ss", "systemctl"),
    *("kubectl", "sbatch", "scancel", "squeue"),
}

NODE = re.compile(r"(leaf|spine|gpu|server)\d+(-eth\d+)?|table\d|tier\d-\d")
"""Switches, hosts, ports and flow tables of examples."""

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pages
def test_links_lead_somewhere(page: Page) -> None:
    assert [target for target in page.links if not link_resolves(page, target)] == []


def link_resolves(page: Page, target: str) -> bool:
    file, _, anchor = target.partition("#")
    path = (page.path.parent / file).resolve() if file else page.path
    return path.exists() and (not anchor or anchor in Page(path).anchors)


@pages
def test_what_is_set_as_code_exists(page: Page) -> None:
    assert [span for span in page.inline_code if not span_resolves(page, span)] == []


def span_resolves(page: Page, span: str) -> bool:
    if span in FOREIGN or span in names.texts() or span.split()[0] in FOREIGN_PROGRAMS:
        return True
    if is_command(span):
        return not [*command_problems(span)]
    others = " ".join(word for word in span.split() if word not in names.texts())
    return all(word_resolves(page, word) for word in parts(others))


def parts(span: str) -> list[str]:
    """Return the words that may be names: no numbers, single letters, placeholders, addresses or quoted texts.

    Placeholders are in capitals."""
    plain = re.sub(r"'[^']*'|\"[^\"]*\"|\w+://\S*|\bunix:|0x\w+", " ", span)
    return [word for word in re.findall(r"[\w./\[\]-]*\w/?", plain) if re.search(r"[a-z]{2}|_", word)]


def word_resolves(page: Page, word: str) -> bool:
    if word in FOREIGN or word.startswith(("/", "out/")) or NODE.fullmatch(word):
        return True
    if word.startswith("-"):
        return is_option(word, names.all_options())
    if word in names.words() or names.path_exists(word, folders(page)):
        return True
    if "[" in word:  # a path into JSON or TOML
        return set(re.findall(r"\w\w+", word)) <= names.words()
    if word.startswith("."):  # the end of a file name, or a field of the name before
        return word[1:] in names.words() or any(file.endswith(word) for file in names.files())
    return "." in word and "/" not in word and names.dotted_exists(word)


def folders(page: Page) -> list[Path]:
    """Return the folders of a page's files: the root, the packages, the page's own, and folders that the page names."""
    named = [ROOT / span for span in page.inline_code if "/" in span and " " not in span]
    return [
        ROOT, ROOT / "controller", ROOT / "client", ROOT / "client/signalbox", page.path.parent,
        *(path for path in named if path.is_dir()),
    ]  # fmt: skip


def test_each_page_is_in_the_navigation_of_the_site_once() -> None:
    navigation = re.search(r"^nav = \[.*?^\]", (ROOT / "zensical.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert navigation
    listed = re.findall(r"\"([\w/-]+\.md)\"", navigation[0])
    assert sorted(listed) == sorted(page.name.replace("README.md", "index.md") for page in PAGES)


@pages
def test_commands_are_commands(page: Page) -> None:
    assert [problem for line in page.commands() for problem in command_problems(line)] == []


def is_command(span: str) -> bool:
    first, *rest = span.split()
    return first in ("signalbox", ".venv/bin/signalbox", "make", "sudo") or (
        bool(rest) and first.startswith((".venv/bin/", "scripts/"))
    )


def command_problems(line: str) -> Iterator[str]:
    """Yield the errors of each of our programs in a line, whatever starts it (``sudo``, ``ip netns exec``)."""
    words = list(shlex.split(line, comments=True)) if balanced(line) else line.split()
    for at, word in enumerate(words):
        after = [] if at + 1 == len(words) else words[at + 1 :]
        if word.endswith("/signalbox") or (word == "signalbox" and at == 0):
            yield from signalbox_problems(line, after)
        elif word == "make" and at == 0:
            targets = {word for word in up_to_shell(after) if "=" not in word}
            yield from (f"{line}: no target {target}" for target in targets - names.make_targets())
        elif word == "-m" and at and "python" in words[at - 1]:
            yield from module_problems(line, after)
        elif word.startswith("scripts/") and not (ROOT / word).exists():
            yield f"{line}: no {word}"


def balanced(line: str) -> bool:
    try:
        shlex.split(line)
    except ValueError:
        return False
    return True


def signalbox_problems(line: str, after: list[str]) -> Iterator[str]:
    path, given = "", list(up_to_shell(after))
    while given and (longer := f"{path} {given[0]}".strip()) in names.commands():
        path = longer
        given.pop(0)
    command = names.commands()[path]
    if hasattr(command, "commands") and given and re.match(r"[a-z]", given[0]):
        yield f"{line}: no command {given[0]}"
    own = given[: given.index("--")] if "--" in given else given  # the rest belongs to another program
    yield from unknown_options(line, own, names.options_of(command))


def module_problems(line: str, after: list[str]) -> Iterator[str]:
    dotted, *given = up_to_shell(after)
    if dotted.split(".")[0] not in names.PACKAGES:
        return
    options = names.module_options(dotted, given[0] if given else "")
    if options is None:
        yield f"{line}: no such program"
        return
    yield from unknown_options(line, given, options)


def unknown_options(line: str, given: list[str], known: Set[str]) -> Iterator[str]:
    for word in given:
        option = word.partition("=")[0]
        if option.startswith("--") and not is_option(option, known):
            yield f"{line}: no option {option}"


def is_option(option: str, known: Set[str]) -> bool:
    """Return whether the option is known; a flag may also be given as ``--no-flag``."""
    return option in known or option.replace("--no-", "--", 1) in known


def up_to_shell(words: list[str]) -> list[str]:
    end = next((at for at, word in enumerate(words) if word[0] in "|;&><#"), len(words))
    return words[:end]


@pages
def test_examples_can_be_read(page: Page) -> None:
    unknown: list[str] = []
    for block in page.blocks:
        match block.language:
            case "json":
                json.loads(block.text)
            case "toml":
                data = tomllib.loads(block.text)
                if data.keys() <= names.config_keys():
                    Config.model_validate(data)
            case "python":
                unknown += unknown_imports(ast.parse(block.text))
    assert unknown == []


def unknown_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in names.PACKAGES:
            module = names.modules().get(node.module)
            yield from (f"{node.module}.{a.name}" for a in node.names if not module or a.name not in module.top)


def test_the_reference_names_every_call_of_the_api() -> None:
    calls = [method.name for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods]
    (page,) = (page for page in PAGES if page.name == "docs/reference/api.md")
    assert [call for call in calls if f"`{call}`" not in page.text] == []


def test_code_refers_to_pages_that_exist() -> None:
    named = {
        (path, page)
        for path in chain.from_iterable(names.files().values())
        if path.endswith((".py", ".proto", ".yml", ".toml", ".sh")) and not path.startswith("tests/unit/docs/")
        for page in re.findall(r"\bdocs/[\w/-]+\.md", (ROOT / path).read_text())
    }
    assert sorted((path, page) for path, page in named if not (ROOT / page).exists()) == []
