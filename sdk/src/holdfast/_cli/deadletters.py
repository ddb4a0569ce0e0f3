"""`holdfast dlq`: dead letters and failed jobs, under the topic that they died in."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from holdfast import errors, models
from holdfast._cli.following import followed
from holdfast._cli.params import Json, Limit, Seq, TopicName, Yes, example, time_option
from holdfast._cli.session import Exit, Refused, confirm, session
from holdfast._client import Client, SyncTopic

app = typer.Typer(no_args_is_help=True, help="Dead letters and failed jobs, under the topic that they died in.")

PAGE: Final = 1_000
KINDS: Final = 100  # the most that the service tells at once

Kind = Annotated[
    str | None, typer.Option(metavar="ID", help="Of this kind of error, as list --kinds has it.", show_default=False)
]


@app.command("list", epilog=example("holdfast dlq list mail --kinds"))
def list_letters(
    topic: TopicName,
    kinds: Annotated[bool, typer.Option("--kinds", help="The kinds of errors, and how many of each.")] = False,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List what is out, the newest first: failed jobs of a topic, and its dead letters."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if kinds:
            told = named.failures(limit=min(limit, KINDS))
            shown = out.many(told.failures, "cluster", "count", "first_seen", "last_seen", "title")
        else:
            found = itertools.islice(_out(client, named), limit)
            rows = found if as_json else (_row(named, job) for job in found)
            shown = out.many(rows, "seq", "deliveries", "went_out", "error", "data")
        if not shown:
            out.note(f"Nothing of {topic} is out.")


def _row(topic: SyncTopic, job: models.Job) -> dict[str, Any]:
    """A job that is out, by the seq that it has or had in this topic."""
    letter = job.original_topic == topic.name
    return {
        "seq": job.original_seq if letter else job.seq,
        "deliveries": job.original_deliveries if letter else job.deliveries,
        "went_out": job.dlq_moved_at or job.updated_at,
        "error": job.last_error,
        "data": job.hidden or job.data,
    }


def _out(client: Client, topic: SyncTopic) -> Iterator[models.Job]:
    """What is out of a topic: in it, in its dead-letter topic, and all dead letters where it is one."""
    place = topic.get(touch=False).config.dead_letter
    if place:
        try:
            letters = client.topic(place).jobs(order="newest", limit=PAGE)
            yield from (job for job in letters if job.original_topic == topic.name)
        except (errors.TopicNotFound, errors.NotAQueue):
            pass  # none has come yet; or it is a log
    yield from topic.jobs(state="failed", order="newest", limit=PAGE)
    if not place:
        yield from (job for job in topic.jobs(order="newest", limit=PAGE) if job.original_topic)


@app.command(epilog=example("holdfast dlq show mail 17"))
def show(topic: TopicName, seq: Seq, as_json: Json = False) -> None:
    """Show one, by the seq that it has or had in its topic."""
    with session(as_json) as (client, out):
        out.one(_letter(client, client.topic(topic), seq))


def _letter(client: Client, topic: SyncTopic, seq: int) -> models.Job:
    """The job of this seq, where it is by now."""
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
    seqs: Annotated[list[int] | None, typer.Argument(metavar="SEQ", help="These.", show_default=False)] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    kind: Kind = None,
    error: Annotated[str | None, typer.Option(help="A part of the error.", show_default=False)] = None,
    tag: Annotated[str | None, typer.Option(help="With this tag.", show_default=False)] = None,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant.", show_default=False)] = None,
    older_than: Annotated[int | None, time_option("Out for so long or longer.")] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Jobs a second.", show_default=False)] = None,
    canary: Annotated[
        int | None,
        typer.Option(min=1, help="So many first; the rest stays if many are out again.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and change nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until it is done.")] = True,
    as_json: Json = False,
) -> None:
    """Bring jobs back: by seq, by filter, or all. Ends with 1 if it is stopped."""
    chosen = models.RequeueFilter(error=error, tag=tag, tenant=tenant, older_than_ms=older_than, cluster=kind)
    filtered = chosen != models.RequeueFilter()
    if (bool(seqs), filtered, all_).count(True) != 1:
        raise typer.BadParameter("Say which: SEQs, a filter such as --kind or --error, or --all.")
    with session(as_json) as (client, out):
        asked = client.topic(topic).requeue(
            seqs or None,
            filter=None if seqs else chosen,
            rate=rate,
            canary=None if canary is None else models.Canary(first=canary),
            dry_run=dry_run,
        )
        if asked.id is None or not wait:
            at_least = "" if asked.exact else "at least "
            out.did(asked, f"{at_least}{asked.matched} {'are meant' if asked.id is None else 'are on their way'}.")
            return
        ended = followed(client, asked.id, out)
        stopped = f" {ended.state}: {ended.reason or ''}" if ended.state != "done" else ""
        out.did(ended, f"{ended.requeued} of {ended.matched} are back, {ended.skipped} are not.{stopped}")
        if stopped:
            raise typer.Exit(Exit.REFUSED)


@app.command(epilog=example("holdfast dlq purge mail --kind e9e1e561125f6fe6"))
def purge(topic: TopicName, kind: Kind = None, yes: Yes = False, as_json: Json = False) -> None:
    """Delete what is out: of one kind of error, or all."""
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if not yes:
            confirm(f"Delete {'the' if kind else 'all'} dead letters and failed jobs of {topic} for good?")
        deleted = 0
        for cluster in [kind] if kind else _kinds(named):
            deleted += named.delete_failures(cluster).deleted
        out.did({"topic": topic, "deleted": deleted}, f"{deleted} deleted.")


def _kinds(topic: SyncTopic) -> Iterator[str]:
    """The kinds there are; of more than the service tells at once, those that are left when these are gone."""
    seen: set[str] = set()
    while True:
        told = topic.failures(limit=KINDS)
        fresh = [kind.cluster for kind in told.failures if kind.cluster not in seen]
        yield from fresh
        seen.update(fresh)
        if not told.more or not fresh:
            return
