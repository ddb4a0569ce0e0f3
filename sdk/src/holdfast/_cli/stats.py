"""`holdfast stats`: statistics of topics."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from rich.live import Live

from holdfast import errors
from holdfast._cli.output import Output, table
from holdfast._cli.params import Json, time_option, topics_that_begin
from holdfast._cli.session import PASSING, session
from holdfast._client import Client, SyncTopic

EVERY_SECONDS: Final = 2.0
MOST: Final = 50  # topics shown at once
HELD: Final = ("ready", "scheduled", "blocked", "in_flight", "dead")
HAPPENED: Final = ("enqueued", "completed", "retried", "failed")
EXACT: Final = ("exact", "dead_exact")
COLUMNS: Final = ("topic", *HELD, "oldest_ms", *HAPPENED, "wait_p95_ms", "run_p95_ms")


def stats(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", help="Default: all topics.", autocompletion=topics_that_begin, show_default=False
        ),
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Only names with this prefix.", show_default=False)] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[int | None, time_option("Interval of --watch. Default: 2s.")] = None,
    as_json: Json = False,
) -> None:
    """Show topics' current counts, and the outcomes of jobs in the last complete minute."""
    with session(as_json) as (client, out):
        seconds = EVERY_SECONDS if every is None else every / 1000
        if not watch:
            out.many(_rows(client, out, topics, prefix), *COLUMNS)
            return
        with Live(console=out.console, auto_refresh=False) if _drawn(out) else nullcontext() as live:
            while True:
                try:
                    rows = list(_rows(client, out, topics, prefix))
                except PASSING as error:
                    out.note(f"{error} Retrying until Ctrl-C.")
                else:
                    if live is None:
                        out.many(rows, *COLUMNS)
                    else:
                        live.update(table(rows, COLUMNS, out.console.width), refresh=True)
                time.sleep(seconds)


def _drawn(out: Output) -> bool:
    """Whether output is redrawn in a terminal."""
    return out.console.is_terminal and not out.as_json


def _rows(client: Client, out: Output, names: list[str] | None, prefix: str | None) -> Iterator[dict[str, Any]]:
    """A row for each topic."""
    if not names:
        found = [topic.topic for topic in itertools.islice(client.topics.list(prefix=prefix), MOST + 1)]
        if len(found) > MOST:
            out.note(f"These are the first {MOST} topics. Name topics or use --prefix for others.")
        names = found[:MOST]
    for name in names:
        try:
            row = _row(client.topic(name))
            yield row if out.as_json else _marked(row)
        except errors.TopicNotFound:
            if len(names) == 1:
                raise


def _marked(row: dict[str, Any]) -> dict[str, Any]:
    """A row for people: counts that may be higher end with +."""
    inexact = ["dead"] if row["dead_exact"] is False else []
    if row["exact"] is False:
        inexact += ["ready", "scheduled", "in_flight"]
    return row | {name: f"{row[name]}+" for name in inexact}


def _row(topic: SyncTopic) -> dict[str, Any]:
    """A topic's counts and outcomes; empty for a log."""
    row: dict[str, Any] = dict.fromkeys(("at", *COLUMNS, *EXACT))
    row |= {"at": datetime.now(UTC), "topic": topic.name}
    try:
        totals = topic.totals()
    except errors.NotAQueue:
        return row
    row |= {name: getattr(totals, name) for name in (*HELD, *EXACT)}
    ages = totals.oldest_claimable_age_ms, totals.oldest_blocked_age_ms
    row["oldest_ms"] = max((age for age in ages if age is not None), default=None)
    history = topic.stats_history()
    row |= dict.fromkeys(HAPPENED, 0)
    if history.steps and (history.told_to - (last := history.steps[-1]).at).total_seconds() <= history.step_s:
        row |= {name: getattr(last, name) for name in HAPPENED}
        row |= {"wait_p95_ms": last.wait.p95_ms, "run_p95_ms": last.processing.p95_ms}
    return row
