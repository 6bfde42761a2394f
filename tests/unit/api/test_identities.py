"""The tokens file, the owner of a token or a certificate, and the lease tokens of registrations."""

import base64
import hashlib
import hmac
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from controller.api.identities import Caller, Identities, Role, new_token, token_table
from controller.api.lease_tokens import LeaseTokens
from controller.jobs.messages import HostPrefixes, Quota, new_uid
from signalbox.errors import InvalidInput

TOKEN = "sbx_example"
SHA256 = hashlib.sha256(TOKEN.encode()).hexdigest()

FILE = f"""
[[token]]
name = "blue trainers"
sha256 = "{SHA256}"
role = "tenant"
tenant = "blue"

[[certificate]]
name = "ops.example.org"
role = "operator"

[[certificate]]
name = "red-scheduler"
role = "tenant"
tenant = "red"

[[tenant]]
name = "blue"
max_jobs = 2
max_virtual_links = 100
max_learning_rules = 30
host_prefixes = ["10.0.1.0/24", "10.0.7.12"]
"""
BLUE = Quota(2, 100, 30, HostPrefixes((IPv4Network("10.0.1.0/24"), IPv4Network("10.0.7.12/32"))))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    path.write_text(FILE)
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(InvalidInput) as error:
        Identities.load(path)
    return [str(problem).replace(str(path), "FILE") for problem in error.value.problems]


def test_a_token_is_its_tenants_with_that_tenants_quota(file: Path) -> None:
    caller = Identities.load(file).by_token(TOKEN)
    assert caller == Caller("blue trainers", Role.TENANT, "blue")
    assert caller.quota == BLUE, "callers are the same with another quota"


@pytest.mark.parametrize("token", ["", "sbx_exampl", "sbx_example ", SHA256, "sbx_ex\u00e4mple", "\udcff"])
def test_any_other_text_is_nobodys_token(file: Path, token: str) -> None:
    assert Identities.load(file).by_token(token) is None


def test_a_certificate_counts_by_any_of_its_names(file: Path) -> None:
    identities = Identities.load(file)
    assert identities.by_certificate(["ops.example.org"]) == Caller("ops.example.org", Role.OPERATOR)
    assert identities.by_certificate(["10.0.0.1", "red-scheduler"]) == Caller("red-scheduler", Role.TENANT, "red")
    for names in (["ops"], [], ["ops.example.org", "red-scheduler"]):  # the last are names of two callers
        assert identities.by_certificate(names) is None


def test_what_others_can_read_or_is_no_file_is_refused_with_what_to_do(file: Path, tmp_path: Path) -> None:
    file.chmod(0o644)
    assert problems(file) == ["FILE: other users have access to it (mode 0644): chmod 600 FILE"]
    assert problems(tmp_path) == ["FILE: is not a file"]
    assert problems(tmp_path / "none") == ["FILE: No such file or directory"]


def test_every_wrong_entry_is_named(file: Path) -> None:
    file.write_text(
        """
        [[token]]
        name = "a"
        sha256 = "not hexadecimal"
        role = "king"
        [[token]]
        name = "line\\nbreak"
        sha256 = "00"
        role = "tenant"
        [[certificate]]
        name = "c"
        role = "reader"
        tenant = "blue"
        [[tenant]]
        name = "blue"
        max_jobs = -1
        """
    )
    assert [problem.split(" ")[1] for problem in problems(file)] == [
        "token[0].role:", "token[0].sha256:", "token[1].name:", "token[1].sha256:", "certificate[0]:",
        "tenant[0].max_jobs:",
    ]  # fmt: skip


@pytest.mark.parametrize(("given", "problem"), [
    ('["10.0.1.0/24", "10.0.2.1/24"]', "[1]: has address bits after the prefix length; write 10.0.2.0/24"),
    ('["10.0.1.0/33"]', "[0]: must be an IPv4 prefix such as 10.0.1.0/24"),
    ('["2001:db8::/32"]', "[0]: must be an IPv4 prefix such as 10.0.1.0/24"),
    ('["leaf1"]', "[0]: must be an IPv4 prefix such as 10.0.1.0/24"),
    ("[167772160]", "[0]: must be an IPv4 prefix such as 10.0.1.0/24"),
    ("[]", ": must have at least 1 entry (given: 0)"),
])  # fmt: skip
def test_a_wrong_prefix_is_refused_with_what_would_be_right(file: Path, given: str, problem: str) -> None:
    file.write_text(FILE.replace('["10.0.1.0/24", "10.0.7.12"]', given))
    assert problems(file) == [f"FILE: tenant[0].host_prefixes{problem}"]


def test_tenants_that_may_name_any_host_are_known(file: Path) -> None:
    assert Identities.load(file).without_hosts == ("red",)
    file.write_text(FILE + '\n[[tenant]]\nname = "red"\nhost_prefixes = ["0.0.0.0/0"]\n')
    assert Identities.load(file).without_hosts == ()


def test_a_token_in_the_place_of_its_hash_is_not_repeated(file: Path) -> None:
    token, _ = new_token()
    file.write_text(
        f'[[token]]\nname = "a"\nrole = "{token}"\nsha256 = "{token}"\ntoken = "{token}"\n'
        f'[[tenant]]\nname = "a"\nmax_jobs = "{token}"\n'
    )
    found = problems(file)
    assert len(found) == 4
    assert token not in str(found)


def test_a_file_that_gives_a_role_to_no_one_is_refused_with_what_would_be_right(file: Path) -> None:
    for text in ("", "# nobody yet", FILE[FILE.index("[[tenant]]") :]):
        file.write_text(text)
        (problem,) = problems(file)
        assert problem.startswith("FILE: gives no caller a role")
        assert "signalbox token NAME --role ROLE" in problem
        assert "[[certificate]]" in problem


def test_what_a_role_and_a_token_must_be_is_told(file: Path) -> None:
    for role in ("king", "Operator", ""):
        file.write_text(f'[[certificate]]\nname = "a"\nrole = "{role}"\n')
        said = f"certificate[0].role: must be one of 'operator', 'tenant', 'reader' (given: '{role}')"
        assert problems(file) == [f"FILE: {said}"]
    file.write_text('[[token]]\nname = "ci"\nrole = "reader"\nsha256 = "secret"\n')
    assert problems(file) == ["FILE: token[0].sha256: must be the 64 digits that `signalbox token` prints"]


def test_what_is_different_is_told_by_name(file: Path) -> None:
    before = Identities.load(file)
    text = FILE.replace("ops.example.org", "operations").replace("max_jobs = 2", "max_jobs = 3")
    file.write_text(text + f'\n[[token]]\nname = "ci"\nrole = "reader"\nsha256 = "{"0" * 64}"\n')
    assert Identities.load(file).differences(before) == {
        "tokens": 2, "tokens_before": 1, "certificates": 2, "certificates_before": 2,
        "added": ["token ci", "certificate operations"], "changed": ["tenant blue"],
        "withdrawn": ["certificate ops.example.org"],
    }  # fmt: skip
    file.write_text(FILE + "".join(f'[[certificate]]\nname = "c{i}"\nrole = "reader"\n' for i in range(12)))
    before = Identities.load(file)
    file.write_text(FILE)
    withdrawn = Identities.load(file).differences(before)["withdrawn"]
    assert withdrawn == [*(f"certificate c{i}" for i in range(10)), "and 2 more"]


def test_what_is_there_twice_is_refused(file: Path) -> None:
    file.write_text(FILE + FILE)
    twice = ("token[1].name", "token[1].sha256", "certificate[2].name", "certificate[3].name", "tenant[1].name")
    assert problems(file) == [f"FILE: {field}: repeats an earlier entry; remove it" for field in twice]
    prefixes = '["10.0.1.0/24", "10.0.2.0/24", "10.0.1.0/24"]'
    file.write_text(f'{FILE}\n[[tenant]]\nname = "twice"\nhost_prefixes = {prefixes}\n')
    assert problems(file) == ["FILE: tenant[1].host_prefixes[2]: repeats an earlier entry; remove it"]


def test_the_last_token_of_a_tenant_can_be_withdrawn_while_its_quota_stays(file: Path) -> None:
    file.write_text(FILE[FILE.index("[[certificate]]") :])
    identities = Identities.load(file)
    assert identities.by_token(TOKEN) is None
    assert identities.quotas_for_nobody == ("blue",)


def test_the_table_of_a_new_token_makes_it_known(file: Path) -> None:
    token, sha256 = new_token()
    assert token != new_token()[0]
    assert len(token) > 40
    file.write_text(token_table("ci: *.example.org", Role.TENANT, "blue", sha256))
    assert token not in file.read_text()
    assert Identities.load(file).by_token(token) == Caller("ci: *.example.org", Role.TENANT, "blue")


@pytest.mark.parametrize(("name", "role", "tenant"), [('a"b', Role.READER, None), ("a", Role.TENANT, None)])
def test_no_table_is_made_that_the_file_would_not_take(name: str, role: Role, tenant: str | None) -> None:
    with pytest.raises(InvalidInput):
        token_table(name, role, tenant, SHA256)


UID = "f31d4a67-9f4a-4a3a-8a3c-0f5e3d1f2b11"


def test_a_token_is_the_uid_and_its_mac() -> None:
    secret = bytes(range(32))
    mac = base64.urlsafe_b64encode(hmac.new(secret, UID.encode(), hashlib.sha256).digest()).decode().rstrip("=")
    tokens = LeaseTokens(secret)
    assert tokens.token(UID) == f"{UID}.{mac}"
    assert tokens.uid(tokens.token(UID)) == UID
    assert repr(tokens) == str(tokens) == object.__repr__(tokens), "the secret is not shown"


def test_nothing_else_is_a_token() -> None:
    tokens = LeaseTokens()
    token, other = tokens.token(UID), tokens.token(new_uid())
    mac = token.partition(".")[2]
    wrong = ["", ".", UID, f"{UID}.", f".{mac}", token[:-1], f"{token}=", f"{token}A", token.upper(), f" {token}"]
    wrong += [f"{UID}.{other.partition('.')[2]}", LeaseTokens().token(UID), "x" * 10_000, "é.\U0001f511"]
    wrong += [token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :] for at in range(len(token))]
    assert [tokens.uid(one) for one in wrong] == [None] * len(wrong)
