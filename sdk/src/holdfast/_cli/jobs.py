"""`holdfast claim`, `ack`, `nack`, `fail` and `extend`: a worker's calls, by hand."""

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

MAX_SETTLED: Final = 1_000  # jobs per call
LEASE_MS: Final = 30_000

Seqs = Annotated[
    list[int] | None,
    typer.Argument(
        metavar="SEQ", help="Jobs. Default: read the output of claim --json from stdin.", show_default=False
    ),
]
Error = Annotated[str | None, typer.Option(help="The job's error.", show_default=False)]
LeaseId = Annotated[str | None, typer.Option(help="Only with this lease; for a single job.", show_default=False)]


def claim(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC",
            help="Topics to claim from, in order.",
            autocompletion=topics_that_begin,
            show_default=False,
        ),
    ],
    *,
    max: Annotated[int, typer.Option("--max", "-n", min=1, max=1_000, help="Most jobs to claim.")] = 1,
    wait: Annotated[int | None, time_option("Wait for the first job, at most 30 s.")] = None,
    lease: Annotated[int | None, time_option("Length of the leases.")] = None,
    tenant: Annotated[list[str] | None, typer.Option(help="Only jobs of this tenant. Repeatable.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only jobs with this tag. Repeatable.")] = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Claim jobs of one or more topics. Settle them with ack, nack or fail. Exits with 3 if no job is ready."""
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
            out.note(f"No job is ready in {', '.join(topics)}.")
            raise typer.Exit(Exit.NOTHING)
        of = ["topic"] if len(topics) > 1 else []
        out.many(claimed.jobs, *of, "seq", "deliveries", "deadline", "lease_id", "data")


def ack(
    topic: TopicName,
    seqs: Seqs = None,
    *,
    result: Annotated[
        Any, typer.Option(parser=json_value, metavar="JSON", help="The result of each job.", show_default=False)
    ] = None,
    lease_id: LeaseId = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Complete claimed jobs. Exits with 1 if you no longer hold one of them."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        batches = _batches(topic, seqs, lease_id, node)
        _report(out, "acked", (named.ack(*jobs, results=_repeat(result, jobs)) for jobs in batches))


def nack(
    topic: TopicName,
    seqs: Seqs = None,
    *,
    delay: Annotated[int | None, time_option("How long until they are ready. Default: the topic's backoff.")] = None,
    error: Error = None,
    refund: Annotated[bool, typer.Option("--refund", help="Don't count the delivery.")] = False,
    lease_id: LeaseId = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Return claimed jobs to the queue, to be delivered again."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        batches = _batches(topic, seqs, lease_id, node)
        returned = (named.nack(*jobs, delay_ms=delay, errors=_repeat(error, jobs), refund=refund) for jobs in batches)
        _report(out, "nacked", returned)


def fail(
    topic: TopicName,
    seqs: Seqs = None,
    *,
    error: Error = None,
    lease_id: LeaseId = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Fail claimed jobs for good, without retries."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        batches = _batches(topic, seqs, lease_id, node)
        _report(out, "failed", (named.fail(*jobs, errors=_repeat(error, jobs)) for jobs in batches))


def extend(
    topic: TopicName,
    seqs: Seqs = None,
    *,
    lease: Annotated[int | None, time_option("New length of the leases, from now. Default: 30s.")] = None,
    lease_id: LeaseId = None,
    node: Node = None,
    as_json: Json = False,
) -> None:
    """Extend the leases of claimed jobs."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        batches = _batches(topic, seqs, lease_id, node)
        lease_ms = LEASE_MS if lease is None else lease
        _report(out, "extended", (named.extend(*jobs, lease_ms=lease_ms) for jobs in batches))


def _batches(
    topic: str, seqs: list[int] | None, lease_id: str | None, node: str | None
) -> Iterator[list[models.Lease]]:
    """The given jobs, or the topic's jobs on stdin, in batches of one holder and at most MAX_SETTLED jobs."""
    if lease_id and len(seqs or ()) != 1:
        raise typer.BadParameter("--lease-id needs exactly one SEQ.")
    if seqs:
        leases: Iterable[models.Lease] = [models.Lease(seq, node or own_name(), lease_id or "") for seq in seqs]
    elif sys.stdin.isatty():
        raise typer.BadParameter("Pass SEQs, or pipe the output of `holdfast claim --json` to stdin.")
    else:
        leases = filter(None, (_lease(line, topic) for line in sys.stdin if line.strip()))
    for _, same in itertools.groupby(leases, lambda lease: lease.node):
        while batch := list(itertools.islice(same, MAX_SETTLED)):
            yield batch


def _lease(line: str, topic: str) -> models.Lease | None:
    """Parse a line of `claim --json`; None for a job of another topic."""
    try:
        job = json.loads(line)
        if job.get("topic", topic) != topic:
            return None
        return models.Lease(int(job["seq"]), str(job["node"]), str(job["lease_id"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"stdin: not a line of claim --json: {line.strip():.80}"
        raise Refused("bad_line", why, exit=Exit.USAGE) from error


def _repeat(value: Any, jobs: list[models.Lease]) -> list[Any] | None:
    """The same value for each job."""
    return None if value is None else [value] * len(jobs)


def _report(out: Output, how: str, answers: Iterable[models.Settled | models.Extended]) -> None:
    """Print the result of each call. Exits with 1 if jobs were skipped."""
    skipped: list[int] = []
    for answer in answers:
        skipped += answer.skipped
        out.did(answer, f"{getattr(answer, how)} {how}.")
    if skipped:
        out.note(f"You don't hold these jobs, or no longer: {', '.join(map(str, skipped))}.")
        raise typer.Exit(Exit.REFUSED)
