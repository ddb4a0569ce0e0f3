"""`holdfast peek`, `explain`, `history` and `tail`: read jobs without claiming them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from holdfast import models
from holdfast._cli.output import Output, cell
from holdfast._cli.params import DataHas, ErrorHas, HeldBy, Json, Limit, Of, OfPriority, OlderThan, Seq, TopicName, With
from holdfast._cli.session import PASSING, session
from holdfast._client import SyncTopic
from holdfast.models.jobs import JobState

READ_MS: Final = 30_000  # wait of one read of a tail
AGAIN_SECONDS: Final = 1.0

OneOf = Annotated[int | None, typer.Argument(metavar="SEQ", help="A single job.", show_default=False)]


def peek(
    topic: TopicName,
    seq: OneOf = None,
    *,
    state: Annotated[JobState | None, typer.Option(help="Only jobs in this state.", show_default=False)] = None,
    tag: With = None,
    key: With = None,
    group: Of = None,
    tenant: Of = None,
    priority: OfPriority = None,
    node: HeldBy = None,
    error: ErrorHas = None,
    data: DataHas = None,
    older_than: OlderThan = None,
    newest: Annotated[bool, typer.Option("--newest", help="Newest first, instead of oldest first.")] = False,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List jobs without claiming them."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if seq is not None:
            out.one(named.job(seq))
            return
        found = named.jobs(
            state=state,
            tag=tag,
            key=key,
            group=group,
            tenant=tenant,
            priority=priority,
            node=node,
            error=error,
            data=data or (),
            older_than_ms=older_than,
            order="newest" if newest else "oldest",
            limit=min(limit, 1_000),
        )
        if not out.many(itertools.islice(found, limit), "seq", "state", "priority", "deliveries", "created_at", "data"):
            out.note("There are no such jobs.")


def explain(
    topic: TopicName,
    seq: OneOf = None,
    group: Annotated[str | None, typer.Option(help="Explain why this group is stuck.", show_default=False)] = None,
    tenant: Annotated[str | None, typer.Option(help="The group's tenant.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Explain why a job, or a topic's next job, is not running. The first reason is the one to fix first."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        why: models.JobExplanation | models.TopicExplanation
        why = named.explain(group=group, tenant=tenant) if seq is None else named.explain_job(seq)
        if as_json:
            out.one(why)
            return
        for reason in why.reasons:
            out.say(f"{reason.code}: {reason.message}")
        if why.wait_ms is not None:
            out.say(f"It starts in about {cell('wait_ms', why.wait_ms)}.")


def history(topic: TopicName, seq: Seq, as_json: Json = False) -> None:
    """Show a job's history, oldest event first."""
    with session(as_json) as (client, out):
        found = client.topic(topic).history(seq)
        out.many(found.events, "at", "event", "deliveries", "node", "detail")
        if found.more:
            out.note("There are more, newer events.")


def tail(
    topic: TopicName,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Begin with the last N records.")] = 0,
    after: Annotated[
        int | None, typer.Option(help="Begin after this seq; 0: from the start.", show_default=False)
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="Stop after N records.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show records of a log, or jobs of a queue, as they arrive, without claiming them. Stop with Ctrl-C."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if after is None:
            after = max(0, named.get(touch=False).head_seq - last)
        for record in itertools.islice(_records(named, after, out), count):
            out.did(record, f"{record.seq}  {cell('at', record.at)}  {_tag(record)}{cell('data', record.data)}")


def _tag(record: models.LogRecord) -> str:
    return f"[{record.tag}] " if record.tag else ""


def _records(topic: SyncTopic, after: int, out: Output) -> Iterator[models.LogRecord]:
    """Records after a seq, without end. Waits for an unreachable service."""
    away = False
    while True:
        try:
            read = topic.diff(after, wait_ms=READ_MS, include_tags=True)
        except PASSING as error:
            if not away:
                out.note(f"{error} Retrying until Ctrl-C.")
            away = True
            time.sleep(AGAIN_SECONDS)
            continue
        if away:
            out.note("The service answers again.")
            away = False
        if read.tombstone:
            lost = read.tombstone
            out.note(f"Records {lost.gap_from} to {lost.gap_to} are lost: {lost.reason}.")
        yield from read.records
        after = read.next_from_seq
