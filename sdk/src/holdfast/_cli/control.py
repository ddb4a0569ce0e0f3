"""`holdfast pause`, `resume`, `drain` and `release`: what an operator does to a topic that runs."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast import models
from holdfast._cli.params import Json, Tenant, TopicName, Yes, time_option
from holdfast._cli.session import Exit, confirm, session


def pause(topic: TopicName, tenant: Tenant = None, as_json: Json = False) -> None:
    """Hand out no jobs of a topic; those that are leased can be settled."""
    with session(as_json) as (client, out):
        held = client.topic(topic).pause(tenant=tenant)
        out.did(held, _sentence(held))


def resume(topic: TopicName, tenant: Tenant = None, as_json: Json = False) -> None:
    """End a pause; without a tenant, a drain too."""
    with session(as_json) as (client, out):
        held = client.topic(topic).resume(tenant=tenant)
        out.did(held, _sentence(held))


def drain(
    topic: TopicName,
    wait: Annotated[int | None, time_option("Wait so long until it is empty, a minute at most.")] = None,
    as_json: Json = False,
) -> None:
    """Take nothing in any more, and let what is there be worked off."""
    with session(as_json) as (client, out):
        left = client.topic(topic).drain(wait_ms=wait or 0)
        out.did(left, f"{_sentence(left)} {'It is empty.' if left.empty else f'It has {left.left} jobs.'}")


def release(
    topic: TopicName,
    seqs: Annotated[list[int] | None, typer.Argument(metavar="SEQ", help="These.", show_default=False)] = None,
    *,
    node: Annotated[str | None, typer.Option(help="What this worker holds.", show_default=False)] = None,
    group: Annotated[str | None, typer.Option(help="This group's job.", show_default=False)] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose group.", show_default=False)] = None,
    refund: Annotated[bool, typer.Option("--refund", help="Give the deliveries back.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Take leases back from workers that hang: by seq, by group, or all that a worker holds. The jobs are ready at
    once, and a late ack changes nothing. Ends with 1 if one of the seqs is not leased."""
    if not (seqs or node or group) or (seqs and group):
        raise typer.BadParameter("Say which: SEQs, --group or --node.")
    if tenant is not None and not group:
        raise typer.BadParameter("--tenant goes with --group.")
    with session(as_json) as (client, out):
        if not (seqs or group or yes):
            confirm(f"Take back every lease that {node} has on jobs of {topic}?")
        done = client.topic(topic).release(seqs, node=node, group=group, tenant=tenant, refund=refund)
        out.did(done, f"{done.released} lease{'' if done.released == 1 else 's'} taken back.")
        if done.skipped:
            out.note(f"Not leased: {', '.join(map(str, done.skipped))}.")
            raise typer.Exit(Exit.REFUSED)


def _sentence(held: models.Control) -> str:
    """What of a topic is held up."""
    words = (["is paused"] if held.paused else []) + (["takes nothing in"] if held.draining else [])
    said = f"{held.topic} {' and '.join(words) or 'goes on'}."
    return f"{said} Paused tenants: {', '.join(held.paused_tenants)}." if held.paused_tenants else said
