"""`holdfast claim`, `ack`, `nack`, `fail` and `extend`: what a worker does, by hand."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

import typer

from holdfast import models
from holdfast._cli.output import Output
from holdfast._cli.params import Json, Node, TopicName, json_value, own_name, time_option, topics_that_begin
from holdfast._cli.session import Exit, Refused, session

MAX_SETTLED: Final = 1_000  # jobs of a call
LEASE_MS: Final = 30_000

Seqs = Annotated[
    list[int] | None,
    typer.Argument(
        metavar="SEQ", help="Jobs; without any, those that claim --json printed, on stdin.", show_default=False
    ),
]
Error = Annotated[str | None, typer.Option(help="Why.", show_default=False)]
LeaseId = Annotated[str | None, typer.Option(help="Only under this lease; of one job.", show_default=False)]


def claim(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC", help="Queues, in this order.", autocompletion=topics_that_begin, show_default=False
        ),
    ],
    *,
    max: Annotated[int, typer.Option("--max", "-n", min=1, max=1_000, help="At most so many.")] = 1,
    wait: Annotated[int | None, time_option("Wait so long for the first, 30 s at most.")] = None,
    lease: Annotated[int | None, time_option("For how long they are yours.")] = None,
    tenant: Annotated[list[str] | None, typer.Option(help="Only of this tenant. May be given again.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only with this tag. May be given again.")] = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Lease jobs of one topic or several, to be settled by ack, nack or fail. Ends with 3 if there is none."""
    with session(as_json) as (client, out):
        claimed = client.topics.claim(
            *topics,
            max=max,
            wait_ms=wait or 0,
            lease_ms=lease,
            tenants=tenant or None,
            tags=tag or None,
            node=node or own_name(),
        )
        if not claimed.jobs:
            out.note(f"There is nothing to claim in {', '.join(topics)}.")
            raise typer.Exit(Exit.NOTHING)
        of = ["topic"] if len(topics) > 1 else []
        out.many(claimed.jobs, *of, "seq", "deliveries", "deadline", "lease_id", "data")


def ack(
    topic: TopicName,
    seqs: Seqs = None,
    *,
    result: Annotated[
        Any, typer.Option(parser=json_value, metavar="JSON", help="What came of each.", show_default=False)
    ] = None,
    lease_id: LeaseId = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Complete jobs that were claimed. Ends with 1 if one of them is not yours any more."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        batches = _held(topic, seqs, lease_id, node)
        _tell(out, "acked", (named.ack(*jobs, results=_beside(result, jobs)) for jobs in batches))


def nack(
    topic: TopicName,
    seqs: Seqs = None,
    *,
    delay: Annotated[int | None, time_option("Hide them so long; as the topic's backoff says, if not said.")] = None,
    error: Error = None,
    refund: Annotated[bool, typer.Option("--refund", help="The delivery does not count.")] = False,
    lease_id: LeaseId = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Return jobs that were claimed, to be delivered again."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        batches = _held(topic, seqs, lease_id, node)
        returned = (named.nack(*jobs, delay_ms=delay, errors=_beside(error, jobs), refund=refund) for jobs in batches)
        _tell(out, "nacked", returned)


def fail(
    topic: TopicName,
    seqs: Seqs = None,
    *,
    error: Error = None,
    lease_id: LeaseId = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Take out jobs that were claimed: they are not to be tried again."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        batches = _held(topic, seqs, lease_id, node)
        _tell(out, "failed", (named.fail(*jobs, errors=_beside(error, jobs)) for jobs in batches))


def extend(
    topic: TopicName,
    seqs: Seqs = None,
    *,
    lease: Annotated[int | None, time_option("For how long, from now on; 30s if not said.")] = None,
    lease_id: LeaseId = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Keep jobs that were claimed for longer."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        batches = _held(topic, seqs, lease_id, node)
        _tell(out, "extended", (named.extend(*jobs, lease_ms=LEASE_MS if lease is None else lease) for jobs in batches))


def _held(topic: str, seqs: list[int] | None, lease_id: str | None, node: str | None) -> Iterator[list[models.Lease]]:
    """The jobs that were named, or the topic's on stdin, call by call: those of one holder, as many as a call may
    have."""
    if lease_id and len(seqs or ()) != 1:
        raise typer.BadParameter("--lease-id goes with one SEQ.")
    if seqs:
        leases: Iterable[models.Lease] = [models.Lease(seq, node or own_name(), lease_id or "") for seq in seqs]
    elif sys.stdin.isatty():
        raise typer.BadParameter("Name jobs by SEQ, or pipe `holdfast claim --json` in.")
    else:
        leases = filter(None, (_lease(line, topic) for line in sys.stdin if line.strip()))
    for _, same in itertools.groupby(leases, lambda lease: lease.node):
        while batch := list(itertools.islice(same, MAX_SETTLED)):
            yield batch


def _lease(line: str, topic: str) -> models.Lease | None:
    """A job as `claim --json` prints it; None for a job of another topic."""
    try:
        job = json.loads(line)
        if job.get("topic", topic) != topic:
            return None
        return models.Lease(int(job["seq"]), str(job["node"]), str(job["lease_id"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"stdin: this is no job as claim --json prints it: {line.strip():.80}"
        raise Refused("bad_line", why, exit=Exit.USAGE) from error


def _beside(value: Any, jobs: list[models.Lease]) -> list[Any] | None:
    """What is said of each job alike."""
    return None if value is None else [value] * len(jobs)


def _tell(out: Output, how: str, answers: Iterable[models.Settled | models.Extended]) -> None:
    """What became of them, call by call."""
    skipped: list[int] = []
    for answer in answers:
        skipped += answer.skipped
        out.did(answer, f"{getattr(answer, how)} {how}.")
    if skipped:
        out.note(f"Not yours, or not any more: {', '.join(map(str, skipped))}.")
        raise typer.Exit(Exit.REFUSED)
