"""A job that is out, beside one of the same topic that is not: what failed, where, and with which payload."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request

from app.errors import NotAQueue, TopicNotFound
from app.features.archive import archive
from app.features.archive.archive import Part
from app.features.dead_letters.compare import Pair, pairs, text_of
from app.features.dead_letters.failures import SILENCE
from app.http.context import Context, context_of
from app.http.sight import WHY, as_seen, sees_payloads
from app.kernel import jobs as shown
from app.kernel import ledger
from app.kernel.jobs import Match, Place, Shown
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import BIGINT_MAX
from app.pages.patience import soon
from app.pages.permissions import SEE, SEE_COMPLETED, allows, must_be_allowed

MOST_CHARACTERS: Final = 20_000  # of an error
EVENTS: Final = 20  # that are looked at for who had it last
WAITING: Final = 10  # that are looked at for one that never failed


class Good(msgspec.Struct, frozen=True):
    """A job to compare with: completed at `completed_ms`, or else one that waits and has not failed yet."""

    topic: str
    seq: int
    completed_ms: int | None
    payload: bytes
    content_type: str | None


class Example(msgspec.Struct, frozen=True):
    """`worker`: who had it last, "" for not known. `cut`: there is more of the payloads than `lines` has. `hidden`: why
    there are none, "" where there are."""

    job: Shown
    out_ms: int
    error: str
    error_cut: bool
    worker: str
    deliveries: int
    seq: int | None
    hidden: str
    good: Good | None
    lines: list[Pair]
    same: bool
    cut: bool


def out_ms(job: Shown) -> int:
    """When a job went out, in ms since 1970."""
    return job.updated_ms if job.dlq_moved_ms is None else job.dlq_moved_ms


def seq_in(policy: Policy, job: Shown) -> int | None:
    """The seq by which a requeue in a topic finds a job that is out; None: it doesn't."""
    if job.topic_id == policy.topic.id:
        return job.seq
    return job.first_seq if job.first_topic_id == policy.topic.id else None


async def read(request: Request, policy: Policy, place: Place) -> Example | None:
    """The job at a place, which whoever asks may see; None where it is gone, or not out."""
    context = context_of(request)
    for job in await shown.show(context.pools.rest, [place]):
        if job.dlq_moved_ms is None and job.state != "failed":
            return None
        source = await _source(request, policy, job)
        worker = "" if source is None else await _worker(context, source, job)
        key = must_be_allowed(request, SEE, job.topic)
        job = as_seen(key, job.topic, job)  # noqa: PLW2901
        compares = source is not None and not job.hidden and sees_payloads(key, source.topic.name)
        good = await _good(request, source) if source is not None and compares else None
        bad = text_of(job.payload, job.content_type)
        other = None if good is None else text_of(good.payload, good.content_type)
        lines = pairs(bad.lines, bad.lines if other is None else other.lines)
        error = job.last_error or SILENCE
        return Example(
            job=job,
            out_ms=out_ms(job),
            error=error[:MOST_CHARACTERS],
            error_cut=len(error) > MOST_CHARACTERS,
            worker=worker,
            deliveries=job.deliveries if job.dlq_moved_ms is None else job.original_deliveries or 0,
            seq=seq_in(policy, job),
            hidden=WHY if job.hidden else "",
            good=good,
            lines=lines,
            same=not any(line.differs for line in lines),
            cut=bad.cut or (other is not None and other.cut),
        )
    return None


async def _source(request: Request, policy: Policy, job: Shown) -> Policy | None:
    """The topic that it failed in; None where that is gone, or not for whoever asks."""
    if job.original_topic is None or job.original_topic == policy.topic.name:
        return policy
    if not allows(request, SEE, job.original_topic):
        return None
    try:
        return await context_of(request).policies.queue(job.original_topic)
    except (TopicNotFound, NotAQueue):
        return None


async def _worker(context: Context, source: Policy, job: Shown) -> str:
    """Who had it last, by the ledger; "" where that takes long to find: the job's own page waits for it."""
    seq = seq_in(source, job)
    if seq is None:
        return ""
    events = await soon(ledger.last(context.pools.rest, source.topic, seq, EVENTS))
    return next((event.node for event in events or () if event.node), "")


async def _good(request: Request, source: Policy) -> Good | None:
    db, topic, config = context_of(request).pools.rest, source.topic, source.config
    if config.replayable and allows(request, SEE_COMPLETED, topic.name):
        for done in await archive.page(db, topic, Part(config.replay_window_ms), 1):
            completed_ms = int(done.finished_at.timestamp() * 1000)
            return Good(topic.name, done.seq, completed_ms, done.payload, done.content_type)
    match = Match(states=("ready", "scheduled", "leased"))
    found = await shown.find(db, topic, match, oldest_first=False, behind=BIGINT_MAX, limit=WAITING)
    for job in await shown.show(db, [Place(topic.name, topic.id, seq) for seq in found.seqs]):
        if job.last_error is None and job.original_topic is None:
            return Good(topic.name, job.seq, None, job.payload, job.content_type)
    return None
