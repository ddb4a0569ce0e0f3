"""What the service is made of: pinned by hashes, listed whole, and looked at for what is unsafe."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.run_suites import SUITES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PARTS = ("run", "tracing", "dev", "spark")
FOLDERS = ("app", "deploy", "migrations", "sdk/src", "spark")


def pins(part: str) -> dict[str, set[str]]:
    """The hashes of what is pinned, by `name@version`."""
    text = (ROOT / f"deploy/requirements/{part}.txt").read_text().replace("\\\n", " ")
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            pinned = Requirement(line.partition("--hash")[0].strip())
            [version] = pinned.specifier
            name = f"{canonicalize_name(pinned.name)}@{version.version}"
            found[name] = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", line))
    return found


@pytest.fixture(scope="module")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bills")
    # `make sbom` validates them, which takes some seconds each.
    command = [sys.executable, "deploy/bill.py", str(folder), "--no-validate"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("part", PARTS)
def test_a_bill_lists_what_is_pinned_and_nothing_else(bills: Path, part: str) -> None:
    """Each with its version and all of its hashes, so that what is installed can be held against it."""
    bill = json.loads((bills / f"holdfast-{part}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["name"] == PROJECT["project"]["name"]
    listed = {}
    for one in bill["components"]:
        hashes = {said["content"] for where in one["externalReferences"] for said in where.get("hashes", ())}
        listed[f"{canonicalize_name(one['name'])}@{one['version']}"] = hashes
        assert one["purl"].startswith(f"pkg:pypi/{canonicalize_name(one['name'])}@{one['version']}")
    wanted = pins(part)
    assert wanted
    assert listed == wanted


@pytest.mark.parametrize("part", PARTS)
def test_every_pin_has_a_hash(part: str) -> None:
    assert [name for name, hashes in pins(part).items() if not hashes] == []


def test_what_runs_is_a_part_of_what_is_tested() -> None:
    assert pins("run").items() <= pins("tracing").items() <= pins("dev").items()


def comments() -> list[tuple[str, str]]:
    found = []
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if "nosec" not in path.read_text():
                continue
            for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
                if token.type == tokenize.COMMENT:
                    found.append((f"{path.relative_to(ROOT)}:{token.start[0]}", token.string))
    return found


def test_what_bandit_is_told_to_leave_has_a_reason() -> None:
    """`# nosec B…  # why`; and what it leaves altogether, ruff looks at, or the reason stands beside it."""
    said = [(where, text) for where, text in comments() if "nosec" in text]
    assert said
    assert [where for where, text in said if not re.search(r"# nosec B\d{3}  # .{8,}", text)] == []
    skipped = set(PROJECT["tool"]["bandit"]["skips"]) - {"B404"}
    assert "S" in PROJECT["tool"]["ruff"]["lint"]["select"]
    ruff = [sys.executable, "-m", "ruff", "rule", "--all", "--output-format", "json"]
    rules = {rule["code"]: rule for rule in json.loads(subprocess.run(ruff, check=True, capture_output=True).stdout)}
    assert [code for code in skipped if rules[f"S{code[1:]}"].get("preview")] == []
    assert set(PROJECT["tool"]["ruff"]["lint"]["ignore"]) & {f"S{code[1:]}" for code in skipped} == {"S101"}


def test_bandit_is_one_of_the_checks() -> None:
    [command] = [command for command in SUITES["checks"] if "bandit" in command]
    assert set(FOLDERS) <= set(command)
    assert [part for part in ("app", "sdk/src") if not (ROOT / part).is_dir()] == []


def test_bandit_finds_what_it_is_for(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import pickle\n\n\ndef read(text: bytes) -> object:\n    return pickle.loads(text)\n"
    )
    command = [sys.executable, "-m", "bandit", "-q", "-c", "pyproject.toml", "-r", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "B301" in ran.stdout


def test_an_audit_that_can_ask_nobody_fails(tmp_path: Path) -> None:
    """It must not say that all is well: whom it asks is away here."""
    (tmp_path / "one.txt").write_text("h11==0.16.0 --hash=sha256:" + "0" * 64 + "\n")
    command = [sys.executable, "-m", "pip_audit", "--strict", "--disable-pip", "--require-hashes"]
    command += ["-s", "osv", "--osv-url", "http://127.0.0.1:9/v1/query", "-r", str(tmp_path / "one.txt")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode != 0
    [audit] = re.findall(r"^\t.*-m pip_audit (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "--strict" in audit
    assert "deploy/requirements/dev.txt" in audit
