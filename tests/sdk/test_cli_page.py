"""docs/cli.md says what is so, and every command says enough for itself."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from holdfast._cli.root import app
from tests.api.keyring import Services
from tests.sdk.cli import Cli
from tests.sdk.cli_page import PAGE, Reader, commands, examples, with_the_list
from tests.sdk.conftest import Serve


async def test_its_examples_print_what_it_says(
    serve: Serve, new_database: Callable[[], Awaitable[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await (await Services.make(serve, new_database)).start()
    monkeypatch.chdir(tmp_path)
    reader = Reader(Cli(service.url, HOLDFAST_NODE="cli:ada@laptop"), tmp_path)
    found = examples(PAGE.read_text())
    assert len(found) > 20
    for example in found:
        printed = await reader.type(example.line)
        assert example.printed(printed), f"{example.line}\n{printed}"


def test_its_list_of_commands_is_what_there_is() -> None:
    page = PAGE.read_text()
    assert page == with_the_list(page), "write it anew: python -m tests.sdk.cli_page"


@pytest.mark.parametrize(
    ("name", "command"), list(commands()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_each_has_help_and_an_example_that_parses(name: str, command: Any) -> None:
    assert command.help
    start, _, line = (command.epilog or "").partition(": ")
    assert start == "Example"
    words = shlex.split(line)
    for sign in ("<", ">"):
        words = words[: words.index(sign)] if sign in words else words
    assert words[0] == "holdfast"
    own = words[1 + len(name.split()) :]
    assert " ".join(words[1:]).startswith(name)
    with get_command(app).make_context("holdfast", words[1:2], resilient_parsing=True) as parent:
        command.make_context(name, own, parent=parent).close()
    for param in command.params:
        assert param.param_type_name == "argument" or param.hidden or param.help, param.name
