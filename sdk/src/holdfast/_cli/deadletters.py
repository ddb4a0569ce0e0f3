"""`holdfast dlq`: dead letters and failed jobs, by their original topic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from holdfast import errors, models
from holdfast._cli.following import wait_for
from holdfast._cli.params import Json, Limit, Seq, TopicName, Yes, example, time_option
from holdfast._cli.session import Exit, Refused, confirm, session
from holdfast._client import Client, SyncTopic

app = typer.Typer(no_args_is_help=True, help="Dead letters and failed jobs, by their original topic.")

PAGE: Final = 1_000
KINDS: Final = 100  # the service's limit per call

Kind = Annotated[
    str | None, typer.Option(metavar="ID", help="Only this kind of error, from list --kinds.", show_default=False)
]


@app.command("list", epilog=example("holdfast dlq list mail --kinds"))
def list_letters(
    topic: TopicName,
    kinds: Annotated[bool, typer.Option("--kinds", help="List the kinds of errors and their counts.")] = False,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List a topic's failed jobs and dead letters, newest first."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if kinds:
            failures = named.failures(limit=min(limit, KINDS)).failures
            count = out.many(failures, "cluster", "count", "first_seen", "last_seen", "title")
        else:
            found = itertools.islice(_failed_jobs(client, named), limit)
            rows = found if as_json else (_row(named, job) for job in found)
            count = out.many(rows, "seq", "deliveries", "failed_at", "error", "data")
        if not count:
            out.note(f"{topic} has no failed jobs.")


def _row(topic: SyncTopic, job: models.Job) -> dict[str, Any]:
    """A failed job, with the seq that it has or had in this topic."""
    letter = job.original_topic == topic.name
    return {
        "seq": job.original_seq if letter else job.seq,
        "deliveries": job.original_deliveries if letter else job.deliveries,
        "failed_at": job.dlq_moved_at or job.updated_at,
        "error": job.last_error,
        "data": job.hidden or job.data,
    }


def _failed_jobs(client: Client, topic: SyncTopic) -> Iterator[models.Job]:
    """A topic's failed jobs and its dead letters. For a dead-letter topic: all its dead letters."""
    place = topic.get(touch=False).config.dead_letter
    if place:
        try:
            letters = client.topic(place).jobs(order="newest", limit=PAGE)
            yield from (job for job in letters if job.original_topic == topic.name)
        except (errors.TopicNotFound, errors.NotAQueue):
            pass  # no dead letters yet, or the dead-letter topic is a log
    yield from topic.jobs(state="failed", order="newest", limit=PAGE)
    if not place:
        yield from (job for job in topic.jobs(order="newest", limit=PAGE) if job.original_topic)


@app.command(epilog=example("holdfast dlq show mail 17"))
def show(topic: TopicName, seq: Seq, as_json: Json = False) -> None:
    """Show a failed job, by the seq that it has or had in its topic."""
    with session(as_json) as (client, out):
        out.one(_letter(client, client.topic(topic), seq))


def _letter(client: Client, topic: SyncTopic, seq: int) -> models.Job:
    """The failed job with this seq, in its current topic."""
    try:
        job = topic.job(seq)
    except errors.NotFound:
        place = topic.result(seq).dead_letter
        if place is None:
            raise
        return client.topic(place.topic).job(place.seq)
    if job.state != "failed" and not job.original_topic:
        raise Refused("not_out", f"Job {seq} of {topic.name} is {job.state}.", exit=Exit.NOTHING)
    return job


@app.command(epilog=example("holdfast dlq requeue mail --error Timeout --rate 50"))
def requeue(
    topic: TopicName,
    seqs: Annotated[
        list[int] | None, typer.Argument(metavar="SEQ", help="Jobs to requeue.", show_default=False)
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="All failed jobs.")] = False,
    kind: Kind = None,
    error: Annotated[str | None, typer.Option(help="Only with this text in the error.", show_default=False)] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.", show_default=False)] = None,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.", show_default=False)] = None,
    older_than: Annotated[int | None, time_option("Only if they failed at least this long ago.")] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Jobs per second.", show_default=False)] = None,
    canary: Annotated[
        int | None,
        typer.Option(min=1, help="Requeue this many first; stop if many of them fail again.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the jobs, and change nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")] = True,
    as_json: Json = False,
) -> None:
    """Requeue failed jobs: by seq, by filter, or all. Exits with 1 if the operation is stopped."""
    chosen = models.RequeueFilter(error=error, tag=tag, tenant=tenant, older_than_ms=older_than, cluster=kind)
    filtered = chosen != models.RequeueFilter()
    if (bool(seqs), filtered, all_).count(True) != 1:
        raise typer.BadParameter("Pass SEQs, a filter such as --kind or --error, or --all.")
    with session(as_json) as (client, out):
        asked = client.topic(topic).requeue(
            seqs or None,
            filter=None if seqs else chosen,
            rate=rate,
            canary=None if canary is None else models.Canary(first=canary),
            dry_run=dry_run,
        )
        if asked.id is None or not wait:
            count = f"{'' if asked.exact else 'at least '}{asked.matched} jobs"
            out.did(asked, f"Matches {count}." if asked.id is None else f"Requeueing {count} in the background.")
            return
        ended = wait_for(client, asked.id, out)
        stopped = f" {ended.state}: {ended.reason or ''}" if ended.state != "done" else ""
        out.did(ended, f"{ended.requeued} of {ended.matched} requeued, {ended.skipped} skipped.{stopped}")
        if stopped:
            raise typer.Exit(Exit.REFUSED)


@app.command(epilog=example("holdfast dlq purge mail --kind e9e1e561125f6fe6"))
def purge(topic: TopicName, kind: Kind = None, yes: Yes = False, as_json: Json = False) -> None:
    """Delete dead letters and failed jobs: with one kind of error, or all."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if not yes:
            confirm(f"Delete {'the' if kind else 'all'} dead letters and failed jobs of {topic} for good?")
        deleted = 0
        for cluster in [kind] if kind else _kinds(named):
            deleted += named.delete_failures(cluster).deleted
        out.did({"topic": topic, "deleted": deleted}, f"{deleted} deleted.")


def _kinds(topic: SyncTopic) -> Iterator[str]:
    """All kinds of errors. Asks again after the caller has deleted the first ones, if there are more than KINDS."""
    seen: set[str] = set()
    while True:
        failures = topic.failures(limit=KINDS)
        fresh = [kind.cluster for kind in failures.failures if kind.cluster not in seen]
        yield from fresh
        seen.update(fresh)
        if not failures.more or not fresh:
            return
