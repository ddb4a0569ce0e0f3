"""POST /v0/topics/:topic/release: an operator takes leases back."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from app.errors import BatchTooLarge, InvalidRequest
from app.features.jobs.requests import Leases, release
from app.http.bounds import MAX_NODE_BYTES, MAX_SEQS, Group, Seqs, about, text
from app.http.fields import check_node, check_text
from app.http.route import Call
from app.kernel.model import MAX_GROUP
from app.kernel.topics.settings import BIGINT_MAX


class ReleaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs by seq, a group's job, or all that a worker holds."""

    seqs: Seqs | None = None
    group: Annotated[Group | None, about("The job of this group that is leased. Not beside seqs.")] = None
    tenant: Annotated[
        Annotated[str, Meta(max_length=MAX_GROUP)] | None, about('Whose group. "" is the default one.', "")
    ] = None
    node: Annotated[
        Annotated[str, text("A worker's name.", most=MAX_NODE_BYTES, least=1)] | None,
        about("All jobs that this worker holds. Beside seqs or group: those jobs, if this worker holds them."),
    ] = None
    visible_at: Annotated[
        Annotated[list[Annotated[int, Meta(ge=0, le=BIGINT_MAX)]], Meta(max_length=MAX_SEQS)] | None,
        about("One for each seq, as GET jobs shows it: only if the lease still ends then. Only beside seqs."),
    ] = None
    refund: Annotated[bool | None, about("true: gives the deliveries back; else they count.", False)] = None


class ReleaseAnswer(msgspec.Struct):
    """How many leases were taken back; how many of their jobs ended instead of being claimable; and the seqs that are
    not leased, or not as the request says."""

    topic: str
    released: int
    ended: int
    skipped: list[int]


async def take_back(call: Call, body: ReleaseBody) -> ReleaseAnswer:
    """Take leases back from workers that hang. The jobs are claimable at once, and what their late holders say changes
    nothing."""
    leases = _leases(body)
    taken = await release(call.request, await call.queue(), leases, refund=bool(body.refund))
    return ReleaseAnswer(call.topic, *taken)


def _leases(body: ReleaseBody) -> Leases:
    if body.seqs is None and body.group is None and body.node is None:
        raise InvalidRequest("Name the leases: by seqs, group or node.")
    if body.seqs is not None and body.group is not None:
        raise InvalidRequest("Name jobs by seqs or by group, not by both.")
    if body.tenant is not None and body.group is None:
        raise InvalidRequest("tenant goes with group.")
    if body.visible_at is not None and len(body.visible_at) != len(body.seqs or ()):
        raise InvalidRequest(f"visible_at has {len(body.visible_at)} entries for {len(body.seqs or ())} seqs.")
    if len(body.seqs or ()) > MAX_SEQS:
        raise BatchTooLarge(f"At most {MAX_SEQS} seqs a call.", {"seqs": len(body.seqs or ()), "max": MAX_SEQS})
    return Leases(
        seqs=body.seqs,
        visible_at=body.visible_at or (),
        group=None if body.group is None else check_text(body.group, "group", 4 * MAX_GROUP),
        tenant=check_text(body.tenant or "", "tenant", 4 * MAX_GROUP),
        node=None if body.node is None else check_node(body.node),
    )
