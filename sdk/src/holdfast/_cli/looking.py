"""`holdfast peek`, `explain`, `history` and `tail`: looking without taking."""

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

READ_MS: Final = 30_000  # for how long one read of a tail waits
AGAIN_SECONDS: Final = 1.0

OneOf = Annotated[int | None, typer.Argument(metavar="SEQ", help="One job; none: several.", show_default=False)]


def peek(
    topic: TopicName,
    seq: OneOf = None,
    *,
    state: Annotated[JobState | None, typer.Option(help="Only those.", show_default=False)] = None,
    tag: With = None,
    key: With = None,
    group: Of = None,
    tenant: Of = None,
    priority: OfPriority = None,
    node: HeldBy = None,
    error: ErrorHas = None,
    data: DataHas = None,
    older_than: OlderThan = None,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first, not the oldest.")] = False,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """Look at jobs without claiming them."""
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
            out.note("There are none.")


def explain(
    topic: TopicName,
    seq: OneOf = None,
    group: Annotated[str | None, typer.Option(help="Why does this group not go on?", show_default=False)] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose group.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Why does a job not run, or the next of a topic? What must be mended first comes first."""
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
            out.say(f"It starts in {cell('wait_ms', why.wait_ms)} or so.")


def history(topic: TopicName, seq: Seq, as_json: Json = False) -> None:
    """What has happened to a job, the oldest first."""
    with session(as_json) as (client, out):
        told = client.topic(topic).history(seq)
        out.many(told.events, "at", "event", "deliveries", "node", "detail")
        if told.more:
            out.note("There is more, which is newer.")


def tail(
    topic: TopicName,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Begin so many before the end.")] = 0,
    after: Annotated[int | None, typer.Option(help="Begin after this seq; 0 is the start.", show_default=False)] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", min=1, help="End after so many.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show records of a log as they come, or jobs of a queue, without claiming them. Ctrl-C ends it."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if after is None:
            after = max(0, named.get(touch=False).head_seq - last)
        for record in itertools.islice(_records(named, after, out), count):
            out.did(record, f"{record.seq}  {cell('at', record.at)}  {_tag(record)}{cell('data', record.data)}")


def _tag(record: models.LogRecord) -> str:
    return f"[{record.tag}] " if record.tag else ""


def _records(topic: SyncTopic, after: int, out: Output) -> Iterator[models.LogRecord]:
    """What comes after a seq, without end. A service that is away is waited for."""
    away = False
    while True:
        try:
            read = topic.diff(after, wait_ms=READ_MS, include_tags=True)
        except PASSING as error:
            if not away:
                out.note(f"{error} It is tried again until Ctrl-C.")
            away = True
            time.sleep(AGAIN_SECONDS)
            continue
        if away:
            out.note("It goes on.")
            away = False
        if read.tombstone:
            lost = read.tombstone
            out.note(f"{lost.gap_from} to {lost.gap_to} are lost: {lost.reason}.")
        yield from read.records
        after = read.next_from_seq
