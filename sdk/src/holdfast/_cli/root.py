"""`holdfast` and its commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

import typer

from holdfast._cli import (
    bench,
    cancelling,
    control,
    deadletters,
    importing,
    jobs,
    keys,
    looking,
    objects,
    producing,
    schedules,
    stats,
    topics,
    worker,
)
from holdfast._cli.params import example
from holdfast._version import __version__

app = typer.Typer(name="holdfast", no_args_is_help=True, pretty_exceptions_enable=False)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def holdfast(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Command line of the Holdfast job queue service. Set HOLDFAST_URL to its address and HOLDFAST_API_KEY to a key."""


GROUPS: Final = {
    "topics": topics.app,
    "dlq": deadletters.app,
    "schedules": schedules.app,
    "keys": keys.app,
    "objects": objects.app,
}
COMMANDS: Final[Mapping[Callable[..., None], str]] = {
    producing.put: 'holdfast put mail \'{"to": "ada"}\' --delay 5m',
    producing.enqueue: "holdfast enqueue mail letters.ndjson",
    importing.import_: "holdfast import jobs queue.json",
    jobs.claim: "holdfast claim mail --max 10 --wait 20s --json > taken.ndjson",
    jobs.ack: "holdfast ack mail < taken.ndjson",
    jobs.nack: "holdfast nack mail 17 --delay 1m --error '421 try again'",
    jobs.fail: "holdfast fail mail 17 --error 'no such address'",
    jobs.extend: "holdfast extend mail 17 --lease 10m",
    cancelling.cancel: "holdfast cancel mail --tag news --rate 100",
    looking.peek: "holdfast peek mail --state scheduled",
    looking.tail: "holdfast tail mail --last 10 --json",
    looking.explain: "holdfast explain mail 17",
    looking.history: "holdfast history mail 17",
    stats.stats: "holdfast stats --watch",
    control.pause: "holdfast pause mail",
    control.resume: "holdfast resume mail",
    control.drain: "holdfast drain mail --wait 1m",
    control.release: "holdfast release mail --node worker-3",
    bench.bench: "holdfast bench --jobs 20000",
    worker.worker: "holdfast worker tasks:queue --processes 4",
}

for command, line in COMMANDS.items():
    app.command(command.__name__.removesuffix("_"), epilog=example(line))(command)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)
