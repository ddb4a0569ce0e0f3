"""Commands of README and manual that no page's test runs: what they call is there, and takes their words."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from ruamel.yaml import YAML

from spark.__main__ import _parser as parser_of_pipelines
from tests import command_lines
from tests.command_lines import ROOT, Command
from tests.conftest import Running
from tests.manual import Shell, Step, steps


@cache
def found() -> list[Command]:
    return [command for page in command_lines.pages() for command in command_lines.of_page(page)]


def said(pattern: str) -> list[Command]:
    """Those that fit, without those of blocks that tests/test_manual.py runs whole."""
    fit = [one for one in found() if fnmatchcase(str(one), pattern)]
    blocks = {(page, step.line + 1) for page in {one.page for one in fit} for step in steps((ROOT / page).read_text())}
    return [one for one in fit if (one.page, one.line) not in blocks]


def test_what_make_and_python_are_told_there_is() -> None:
    """Targets, and modules."""
    words = [shlex.split(one.text.replace("$(", "").replace("…", "x")) for one in found() if "\n" not in one.text]
    targets = {line[line.index("make") + 1] for line in words if "make" in line[:2]}
    assert len(targets) > 20
    ran = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    modules = {line[i + 1] for line in words for i, word in enumerate(line) if word == "-m" and "python" in line[i - 1]}
    ours = {name.replace(".", "/") for name in modules if name.split(".")[0] in ("app", "spark", "tests", "tools")}
    assert ours
    ends = (".py", "/__main__.py")
    assert [name for name in ours if not any((ROOT / f"{name}{end}").is_file() for end in ends)] == []


OPERATORS: Final = (
    *("docs/keys.md $ ./run keys add *", "docs/keys.md $ ./run users *", "* $ ./run reap*"),
    *("* $ ./run migrate", "* $ ./run openapi"),
)
# In one process, as each start of it takes as long as the command.
_IN_TURN: Final = """
import io, json, sys
from app.__main__ import main
for words in json.loads(sys.argv[1]):
    sys.stdin = io.StringIO("correct horse battery staple\\n")
    code = main(words)
    assert code == 0, (words, code)
"""


async def test_operators_commands_work_as_they_stand(new_database: Callable[[], Awaitable[str]]) -> None:
    """Page by page, on one database. A password comes from stdin."""
    asked = dict.fromkeys(one for pattern in OPERATORS for one in said(pattern))
    words = [shlex.split(one.text)[1:] for one in sorted(asked, key=lambda one: (one.page, one.line))]
    assert len(words) > 12
    mine = {"HOLDFAST_DATABASE_URL": await new_database(), "HOLDFAST_BCRYPT_COST": "10"}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = [sys.executable, "-c", _IN_TURN, json.dumps(words)]
    ran = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, env=clean | mine, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert len(re.findall(r"^hf_\S{43}$", ran.stdout, re.MULTILINE)) == len([one for one in words if one[0] == "keys"])
    assert re.search(r"^schema: (\S+) -> \1$", ran.stdout, re.MULTILINE)


async def test_calls_with_a_key_work_as_they_stand(
    serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Those of a service that somebody has to sign in to: the runbooks', and that of Compose, with its .env."""
    service = await serve(database_url=await new_database(), api_keys="k3y:read+write+admin")
    (tmp_path / ".env").write_text("POSTGRES_PASSWORD=x\nHOLDFAST_ADMIN_KEY=k3y\n")
    monkeypatch.setenv("KEY", "k3y")
    made = "curl -X PUT http://127.0.0.1:8080/v0/topics/mail -H 'authorization: Bearer k3y' -d '{\"type\": \"queue\"}'"
    pages = "docs/operations/runbooks.md", "docs/operations/deployment.md"
    asked = [one.text for page in pages for one in said(f"{page} $ curl *")]
    assert len(asked) == 3
    with closing(Shell(tmp_path, service.url)) as shell:
        for text in [made + " -H 'content-type: application/json'", *asked]:
            [call] = (await asyncio.to_thread(shell.run, Step(0, text, None, None))).calls
            assert call.status < 300, (text, call)


def test_rules_become_objects_of_the_operator(tmp_path: Path) -> None:
    """The loop of the manual, in the folder of the rules, where kubectl only reads."""
    [command] = said("docs/operations/monitoring.md $ for file *")
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\ncat\n")
    kubectl.chmod(0o755)
    rules = ROOT / "deploy/prometheus/rules"
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", "-euc", command.text], cwd=rules, env=env, capture_output=True, text=True, check=True)
    made = [one for one in YAML(typ="safe").load_all(ran.stdout) if one]
    assert {one["kind"] for one in made} == {"PrometheusRule"}
    assert {one["metadata"]["name"] for one in made} == {path.stem for path in rules.glob("holdfast-*.yml")}
    assert all(one["spec"]["groups"] for one in made)


def test_pipelines_take_the_words_of_the_manual(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [shlex.split(one.text) for one in found() if re.match(r"(\S*/)?python3? -m spark ", one.text)]
    assert len(lines) >= 12
    for line in lines:
        words = line[line.index("spark") + 1 :]
        if "--help" in words:
            with pytest.raises(SystemExit) as end:
                parser_of_pipelines(["audit"]).parse_args(["audit" if word == "NAME" else word for word in words])
            assert end.value.code == 0
            assert "usage: python -m spark" in capsys.readouterr().out
        else:
            assert parser_of_pipelines(words).parse_args(words).pipeline in words
