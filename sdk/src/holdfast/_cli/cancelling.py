"""`holdfast cancel`: cancels jobs."""

from __future__ import annotations

import itertools
from typing import Annotated, Final, Literal

import typer

from holdfast import models
from holdfast._cli.following import wait_for
from holdfast._cli.output import Output
from holdfast._cli.params import DataHas, ErrorHas, HeldBy, Json, Of, OfPriority, OlderThan, TopicName, With, Yes
from holdfast._cli.session import Exit, confirm, session
from holdfast._client import SyncTopic

MOST: Final = 1_000  # seqs per call

Pending = Literal["ready", "scheduled", "blocked", "leased"]


def cancel(
    topic: TopicName,
    seqs: Annotated[list[int] | None, typer.Argument(metavar="SEQ", help="Jobs to cancel.", show_default=False)] = None,
    *,
    state: Annotated[Pending | None, typer.Option(help="Only jobs in this state.", show_default=False)] = None,
    tag: With = None,
    key: With = None,
    group: Of = None,
    tenant: Of = None,
    priority: OfPriority = None,
    node: HeldBy = None,
    error: ErrorHas = None,
    data: DataHas = None,
    older_than: OlderThan = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Jobs per second.", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the jobs, and change nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is done.")] = True,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Cancel jobs by seq, or all jobs that match a filter. Exits with 1 if one of the seqs can't be cancelled, or if
    the operation is stopped."""
    chosen = models.CancelFilter(
        state=state,
        tag=tag,
        key=key,
        group=group,
        tenant=tenant,
        priority=priority,
        node=node,
        error=error,
        data=tuple(data) if data else None,
        older_than_ms=older_than,
    )
    if bool(seqs) == (chosen != models.CancelFilter()):
        raise typer.BadParameter("Pass SEQs or a filter such as --tag or --state.")
    if seqs and (dry_run or rate):
        raise typer.BadParameter("--dry-run and --rate need a filter.")
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if seqs:
            _cancel_seqs(named, seqs, out)
            return
        if dry_run or not yes:
            meant = named.cancel_all(chosen, dry_run=True)
            if dry_run:
                out.did(meant, f"{'' if meant.exact else 'At least '}{meant.matched} jobs match.")
                return
            confirm(f"Cancel {'about' if meant.exact else 'at least'} {meant.matched} jobs of {topic}?")
        asked = named.cancel_all(chosen, rate=rate)
        if asked.id is None or not wait:
            out.did(asked, f"Cancelling {'' if asked.exact else 'at least '}{asked.matched} jobs in the background.")
            return
        ended = wait_for(client, asked.id, out)
        stopped = f" {ended.state}: {ended.reason or ''}" if ended.state != "done" else ""
        out.did(ended, f"{_sentence(ended.gone, ended.marked)}{stopped}")
        if stopped:
            raise typer.Exit(Exit.REFUSED)


def _cancel_seqs(topic: SyncTopic, seqs: list[int], out: Output) -> None:
    """Cancel jobs by seq, MOST per call."""
    skipped: list[int] = []
    rest = iter(seqs)
    while batch := list(itertools.islice(rest, MOST)):
        answer = topic.cancel(batch)
        skipped += answer.skipped
        out.did(answer, _sentence(answer.cancelled, answer.marked))
    if skipped:
        out.note(f"Not cancelled, because they have ended or don't exist: {', '.join(map(str, skipped))}.")
        raise typer.Exit(Exit.REFUSED)


def _sentence(gone: int, marked: int) -> str:
    leased = f" {marked} are leased: their workers are notified." if marked else ""
    return f"{gone} cancelled.{leased}"
