"""The pages say what is so: each of their commands is run as it stands, and answers as they print it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests import examples, routes
from tests.launch import services
from tests.manual import Call, Shell, Step, differences, frames, printed, steps
from tests.settings import newer, without
from tools.bench import load

ROOT = Path(__file__).parents[1]
# Pages, and how many commands each has at least: a page that is read as having none proves nothing.
COMMANDS: Final = {
    "README.md": 6,
    "docs/quick-start.md": 6,
    "docs/errors.md": 1,
    "docs/v0.md": 20,
    "docs/messages.md": 12,
    "docs/configuration.md": 3,
    "docs/order.md": 14,
    "docs/retries.md": 7,
    "docs/dead-letters.md": 10,
    "docs/admin.md": 2,
    "docs/operations/processes.md": 3,
    "docs/schedules.md": 6,
    "docs/keys.md": 5,
    "docs/explain.md": 8,
    "docs/jobs.md": 14,
    "docs/webhooks.md": 8,
    "docs/enqueue.md": 14,
}

NEWER: Final = newer((ROOT / "docs/v0.md").read_text(), (ROOT / "docs/configuration.md").read_text())


@pytest.mark.parametrize("page", ["README.md", "docs/benchmarks.md"])
def test_rates_that_are_without_counts_are_said_to_be(page: str) -> None:
    assert load.CLAIM.endswith("?return_counts=false")
    text = " ".join((ROOT / page).read_text().split())
    assert re.search(r"return_counts=false`\).{0,150}(examples|commands).{0,150}a statement more each time", text)


@pytest.mark.parametrize("page", COMMANDS)
@pytest.mark.slow
async def test_its_commands_work_as_they_stand(
    page: str, new_database: Callable[[], Awaitable[str]], tmp_path: Path
) -> None:
    found = [that_ends(step) for step in steps((ROOT / page).read_text())]
    assert len(found) >= COMMANDS[page]
    with services(tmp_path) as start:
        service = start(DATABASE_URL=await new_database())
        with closing(Shell(tmp_path, service.up())) as shell:
            every = [shell.run(step) for step in found]
    ran = [one for one in every if one.calls]  # the reader of a stream may have been killed
    for one in ran:
        where = f"{page}:{one.step.line}"
        *before, last = one.calls
        assert all(200 <= call.status < 300 for call in before), f"{where}: {before}"
        assert last.status == one.step.status or (one.step.status is None and last.status < 300), f"{where}: {last}"
        if one.step.answer is not None:
            assert wrong(last, one.step.answer) == [], where
    examples.check_or_write(page, ran)


def wrong(call: Call, answer: str) -> list[str]:
    """Where an answer is not as the page has it."""
    if not call.out.startswith("retry:"):
        return list(differences(printed(answer), without(NEWER, call.answer)))
    shown, real = frames(answer), frames(call.out)
    if [fields for fields, _ in shown] != [fields for fields, _ in real]:
        return [call.out]
    return [one for (_, a), (_, b) in zip(shown, real, strict=True) for one in differences(a, b)]


def that_ends(step: Step) -> Step:
    """A stream that its reader is to end with Ctrl+C ends by itself here."""
    return replace(step, commands=step.commands.replace("curl -N 'http", "curl -N -m 2 'http"))


def test_the_page_of_v0_has_every_route_of_it() -> None:
    page = (ROOT / "docs/v0.md").read_text()
    table = page[: page.index("## Conventions")]
    paths = [path for path in routes.document()["paths"] if path.startswith("/v0/")]
    assert len(paths) > 30
    starts = ("/v0/topics/{topic}", "/v0/operations/{id}", "/v0/schedules/{name}", "/v0/keys/{id}")
    short = {path: {path.replace(start, "…") for start in starts} | {path} for path in paths}
    assert [path for path in paths if not any(f"{form}`" in table for form in short[path])] == []
