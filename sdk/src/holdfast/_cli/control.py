"""`holdfast pause`, `resume` and `drain`."""

from __future__ import annotations

from typing import Annotated

from holdfast import models
from holdfast._cli.params import Json, Tenant, TopicName, time_option
from holdfast._cli.session import session


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


def _sentence(held: models.Control) -> str:
    """What of a topic is held up."""
    words = (["is paused"] if held.paused else []) + (["takes nothing in"] if held.draining else [])
    said = f"{held.topic} {' and '.join(words) or 'goes on'}."
    return f"{said} Paused tenants: {', '.join(held.paused_tenants)}." if held.paused_tenants else said
