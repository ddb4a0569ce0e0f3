"""`holdfast cancel`: jobs that are not to run any more."""

from __future__ import annotations

import itertools
from typing import Annotated, Final, Literal

import typer

from holdfast import models
from holdfast._cli.following import followed
from holdfast._cli.output import Output
from holdfast._cli.params import DataHas, ErrorHas, HeldBy, Json, Of, OfPriority, OlderThan, TopicName, With, Yes
from holdfast._cli.session import Exit, confirm, session
from holdfast._client import SyncTopic

MOST: Final = 1_000  # seqs of a call

Pending = Literal["ready", "scheduled", "blocked", "leased"]


def cancel(
    topic: TopicName,
    seqs: Annotated[list[int] | None, typer.Argument(metavar="SEQ", help="These.", show_default=False)] = None,
    *,
    state: Annotated[Pending | None, typer.Option(help="Only those.", show_default=False)] = None,
    tag: With = None,
    key: With = None,
    group: Of = None,
    tenant: Of = None,
    priority: OfPriority = None,
    node: HeldBy = None,
    error: ErrorHas = None,
    data: DataHas = None,
    older_than: OlderThan = None,
    rate: Annotated[int | None, typer.Option(min=1, help="Jobs a second.", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and change nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until it is done.")] = True,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Cancel jobs: by seq, or all that match a filter, which are counted first. Ends with 1 if one of the seqs is not
    to be cancelled any more, or it is stopped."""
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
        raise typer.BadParameter("Say which: SEQs, or a filter such as --tag or --state.")
    if seqs and (dry_run or rate):
        raise typer.BadParameter("--dry-run and --rate go with a filter.")
    with session(as_json) as (client, out):
        named = client.topic(topic)
        if seqs:
            _these(named, seqs, out)
            return
        if dry_run or not yes:
            meant = named.cancel_all(chosen, dry_run=True)
            if dry_run:
                out.did(meant, f"{'' if meant.exact else 'at least '}{meant.matched} are meant.")
                return
            confirm(f"Cancel {'about' if meant.exact else 'at least'} {meant.matched} jobs of {topic}?")
        asked = named.cancel_all(chosen, rate=rate)
        if asked.id is None or not wait:
            out.did(asked, f"{'' if asked.exact else 'at least '}{asked.matched} are on their way.")
            return
        ended = followed(client, asked.id, out)
        stopped = f" {ended.state}: {ended.reason or ''}" if ended.state != "done" else ""
        out.did(ended, f"{_sentence(ended.gone, ended.marked)}{stopped}")
        if stopped:
            raise typer.Exit(Exit.REFUSED)


def _these(topic: SyncTopic, seqs: list[int], out: Output) -> None:
    """Cancel jobs by seq, as many at once as a call may have."""
    skipped: list[int] = []
    rest = iter(seqs)
    while batch := list(itertools.islice(rest, MOST)):
        answer = topic.cancel(batch)
        skipped += answer.skipped
        out.did(answer, _sentence(answer.cancelled, answer.marked))
    if skipped:
        out.note(f"Over, or not there: {', '.join(map(str, skipped))}.")
        raise typer.Exit(Exit.REFUSED)


def _sentence(gone: int, marked: int) -> str:
    leased = f" {marked} are leased: their holders are told." if marked else ""
    return f"{gone} cancelled.{leased}"
