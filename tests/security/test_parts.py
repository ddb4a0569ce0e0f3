"""What the service is made of: pinned by hashes, listed whole, and looked at for what is unsafe."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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
    assert all(wanted.values()), "every pin has a hash"
    assert listed == wanted


def test_what_runs_is_a_part_of_what_is_tested() -> None:
    assert pins("run").items() <= pins("tracing").items() <= pins("dev").items()


def test_what_bandit_is_told_to_leave_has_a_reason() -> None:
    """`# nosec B…  # why`; and what it leaves altogether, ruff looks at, or the reason stands beside it."""
    said = [
        (path.name, line)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text().splitlines()
        if "# nosec" in line
    ]
    assert said
    assert [one for one in said if not re.search(r"# nosec B\d{3}  # .{8,}", one[1])] == []
    skipped = {f"S{code[1:]}" for code in PROJECT["tool"]["bandit"]["skips"]} - {"S404"}
    lint = PROJECT["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert set(lint["ignore"]) & skipped == {"S101"}


def test_bandit_is_one_of_the_checks_and_finds_what_it_is_for(tmp_path: Path) -> None:
    [checked] = [command for command in SUITES["checks"] if "bandit" in command]
    assert set(FOLDERS) <= set(checked)
    (tmp_path / "bad.py").write_text("import pickle\n\npickle.loads(b'')\n")
    command = [sys.executable, "-m", "bandit", "-q", "-c", "pyproject.toml", "-r", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "B301" in ran.stdout


def test_an_audit_that_can_ask_nobody_fails() -> None:
    """It must not say that all is well."""
    [audit] = re.findall(r"^\t.*-m pip_audit (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"--strict", "deploy/requirements/dev.txt"} <= set(audit.split())
