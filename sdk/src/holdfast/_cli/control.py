"""`holdfast pause`, `resume`, `drain` and `release`."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast import models
from holdfast._cli.params import Json, Tenant, TopicName, Yes, time_option
from holdfast._cli.session import Exit, confirm, session


def pause(topic: TopicName, tenant: Tenant = None, as_json: Json = False) -> None:
    """Pause a topic: workers get no jobs from it. Leased jobs can still be settled."""
    with session(as_json) as (client, out):
        control = client.topic(topic).pause(tenant=tenant)
        out.did(control, _sentence(control))


def resume(topic: TopicName, tenant: Tenant = None, as_json: Json = False) -> None:
    """Resume a paused topic. Without a tenant, this also ends a drain."""
    with session(as_json) as (client, out):
        control = client.topic(topic).resume(tenant=tenant)
        out.did(control, _sentence(control))


def drain(
    topic: TopicName,
    wait: Annotated[int | None, time_option("Wait until it is empty, at most a minute.")] = None,
    as_json: Json = False,
) -> None:
    """Drain a topic: it accepts no new jobs, and workers finish the others."""
    with session(as_json) as (client, out):
        left = client.topic(topic).drain(wait_ms=wait or 0)
        out.did(left, f"{_sentence(left)} {'It is empty.' if left.empty else f'It has {left.left} jobs.'}")


def release(
    topic: TopicName,
    seqs: Annotated[
        list[int] | None, typer.Argument(metavar="SEQ", help="Jobs to release.", show_default=False)
    ] = None,
    *,
    node: Annotated[str | None, typer.Option(help="Jobs that this worker holds.", show_default=False)] = None,
    group: Annotated[str | None, typer.Option(help="The leased job of this group.", show_default=False)] = None,
    tenant: Annotated[str | None, typer.Option(help="The group's tenant.", show_default=False)] = None,
    refund: Annotated[bool, typer.Option("--refund", help="Don't count the deliveries.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """End the leases of workers that hang: by seq, by group, or all leases of a worker. The jobs are ready at once, and
    late acks have no effect. Exits with 1 if one of the seqs is not leased."""
    if not (seqs or node or group) or (seqs and group):
        raise typer.BadParameter("Pass SEQs, --group or --node.")
    if tenant is not None and not group:
        raise typer.BadParameter("--tenant needs --group.")
    with session(as_json) as (client, out):
        if not (seqs or group or yes):
            confirm(f"End all leases of {node} on jobs of {topic}?")
        done = client.topic(topic).release(seqs, node=node, group=group, tenant=tenant, refund=refund)
        out.did(done, f"{done.released} lease{'' if done.released == 1 else 's'} ended.")
        if done.skipped:
            out.note(f"Not leased: {', '.join(map(str, done.skipped))}.")
            raise typer.Exit(Exit.REFUSED)


def _sentence(control: models.Control) -> str:
    words = (["is paused"] if control.paused else []) + (["is draining"] if control.draining else [])
    state = f"{control.topic} {' and '.join(words) or 'is running'}."
    return f"{state} Paused tenants: {', '.join(control.paused_tenants)}." if control.paused_tenants else state
