"""/admin/topics/{topic}/dead/jobs: failed jobs with a filter, and one of them in full.

That one is compared with a job of the same topic that has not failed, line by line.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.times import ms_of
from app.errors import Forbidden, InvalidRequest, NotAQueue, TopicNotFound
from app.features.archive import archive
from app.features.archive.archive import ArchivePart
from app.features.dead_letters.failures import NO_ERROR
from app.features.dead_letters.page import find, may_see_letters
from app.features.dead_letters.requeues import AGES, requeue_of, selection_in
from app.features.jobs.operations import THE_BEGINNING, SearchPlace
from app.features.jobs.page import page_of
from app.features.jobs.redrives import Behind, Redrives
from app.features.saved_views import page as saved
from app.http.context import Context, context_of
from app.http.sight import WHY, as_seen, sees_payloads
from app.kernel import jobs, ledger
from app.kernel.jobs import JobMatch, JobPlace, JobView
from app.kernel.model import Connection, PayloadForm, Seq, form_of, is_utf8
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import BIGINT_MAX
from app.pages.frame import tabs
from app.pages.permissions import PURGE, REQUEUE, SEE, SEE_COMPLETED, allows, check_permission
from app.pages.render import look_briefly, page

MOST: Final = 50  # jobs of a page
MOST_ERROR: Final = 20_000  # characters of an error
EVENTS: Final = 20  # searched for the last worker
WAITING: Final = 10  # waiting jobs searched for one that never failed
MOST_BYTES: Final = 64 * 1024  # shown of a payload; longer JSON is not indented
MOST_LINES: Final = 500
MOST_CHARACTERS: Final = 500  # of a line
_HEX_BYTES: Final = 16  # a line
_BEHIND: Final = re.compile(r"([0-9])\.([0-9]{1,17})\.([0-9]{1,19})\Z")


class FailedRow(msgspec.Struct, frozen=True):
    """A job in the list.

    `seq`: the seq for a requeue, None if it can't be requeued from this topic. `at`: the job's name in this page's
    addresses. `page`: the address of the job's page.
    """

    seq: int | None
    at: str
    page: str
    error: str
    out_ms: int
    deliveries: int
    tag: str
    key: str


class PayloadLines(msgspec.Struct, frozen=True):
    """A payload as lines. `cut`: whether there is more."""

    lines: list[str]
    cut: bool


class LinePair(msgspec.Struct, frozen=True):
    """A line of each payload, None if that one has no such line."""

    left: str | None
    right: str | None
    differs: bool


class Good(msgspec.Struct, frozen=True):
    """A job to compare with: completed at `completed_ms`, or waiting without a failure (None)."""

    topic: str
    seq: int
    completed_ms: int | None
    payload: bytes
    content_type: str | None


class Example(msgspec.Struct, frozen=True):
    """A failed job in full.

    `worker`: the last worker, "" if unknown. `lines`: its payload beside that of `good`, if there is one.
    `cut`: whether a payload is cut off. `hidden`: why the payload is not shown, "" if it is.
    """

    job: JobView
    out_ms: int
    error: str
    error_cut: bool
    worker: str
    deliveries: int
    seq: int | None
    hidden: str
    good: Good | None
    lines: list[LinePair]
    same: bool
    cut: bool


async def show(request: Request) -> Response:
    """Render the page. Raises InvalidRequest, Forbidden, TopicNotFound, NotAQueue, Unavailable."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    given = request.query_params
    selection, behind = selection_in(given), _behind(given.get("after", ""))
    policy = await context.policies.queue(name)
    if not may_see_letters(request, policy):
        raise Forbidden("This topic's dead letters are in another topic. You need permission to see that topic.")
    requeue = await requeue_of(context, policy, selection.match, selection.seqs)
    places, following = await context.core(Redrives).page(requeue, behind, MOST)
    rows = await _rows(context.pools.rest, policy, places)
    cluster = await find(context, policy, selection.cluster)
    chosen = given.get("at", "")
    newest = [] if cluster is None else [f"{cluster.failure.topic}:{cluster.failure.seq}"]
    one = None
    for at in [chosen] if chosen else [*newest, *(row.at for row in rows[-1:] if selection.cluster)]:
        one = one or await _example(request, policy, at)
    base = f"/admin/topics/{name}/dead"
    here = given.get("after", "")
    return page(
        request,
        "dead_jobs.html",
        title=f"Failed jobs of {name}",
        topic=name,
        tabs=tabs(request, name),
        base=base,
        selection=selection,
        kept=await saved.of(request, selection.address(f"{base}/jobs"), worth=bool(selection.fields)),
        ages=AGES,
        cluster=cluster,
        one=one,
        gone=bool(chosen) and one is None,
        rows=rows,
        links={row.at: selection.address(f"{base}/jobs", at=row.at, after=here) for row in rows},
        first=selection.address(f"{base}/jobs") if here else "",
        following="" if following is None else selection.address(f"{base}/jobs", after=_place(following)),
        requeue=selection.address(f"{base}/requeue"),
        purge=selection.address(f"{base}/purge") if selection.cluster else "",
        may_requeue=allows(request, REQUEUE, name),
        may_purge=allows(request, PURGE, name),
    )


async def _rows(db: Connection, policy: Policy, places: list[jobs.JobPlace]) -> list[FailedRow]:
    """The jobs at these places, oldest failure first. Payloads are read in parts."""
    rows: list[FailedRow] = []
    while places and (part := await jobs.show(db, places)):
        rows += [_row(policy, job) for job in part]
        last = jobs.JobPlace(part[-1].topic, part[-1].topic_id, part[-1].seq)
        places = places[places.index(last) + 1 :]
    return sorted(rows, key=lambda row: row.out_ms)


def _row(policy: Policy, job: JobView) -> FailedRow:
    return FailedRow(
        seq_in(policy, job),
        f"{job.topic}:{job.seq}",
        page_of(job.topic, job.seq),
        summary(job.last_error),
        out_ms(job),
        deliveries_of(job),
        job.tag or "",
        job.key or "",
    )


def summary(error: str | None) -> str:
    """The most telling line of an error: the last one of a Python traceback, otherwise the first."""
    lines = [line.strip() for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return NO_ERROR
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


async def _example(request: Request, policy: Policy, at: str) -> Example | None:
    topic, _, seq = at.rpartition(":")
    if topic not in {policy.topic.name, policy.config.dead_letter} or re.fullmatch("[0-9]{1,18}", seq) is None:
        raise InvalidRequest("at must be a job's topic and seq with a colon between them.")
    holder = await context_of(request).policies.queue(topic)
    return await _read_example(request, policy, jobs.JobPlace(topic, holder.topic.id, Seq(int(seq))))


def _place(behind: Behind) -> str:
    micros = (behind.at.time - THE_BEGINNING) // timedelta(microseconds=1)
    return f"{behind.stage}.{micros}.{behind.at.seq}"


def _behind(given: str) -> Behind:
    if not given:
        return Behind()
    match = _BEHIND.match(given)
    if match is None:
        raise InvalidRequest("after is not valid. Use the Next link of this page.")
    stage, micros, seq = map(int, match.groups())
    return Behind(stage, SearchPlace(THE_BEGINNING + timedelta(microseconds=micros), min(seq, BIGINT_MAX)))


def out_ms(job: JobView) -> int:
    """When a job failed for good, in ms since 1970."""
    return job.updated_ms if job.dlq_moved_ms is None else job.dlq_moved_ms


def seq_in(policy: Policy, job: JobView) -> int | None:
    """The seq that names a failed job in a requeue of the topic, None if there is none."""
    if job.topic_id == policy.topic.id:
        return job.seq
    return job.first_seq if job.first_topic_id == policy.topic.id else None


def deliveries_of(job: JobView) -> int:
    return job.deliveries if job.dlq_moved_ms is None else job.original_deliveries or 0


async def _read_example(request: Request, policy: Policy, place: JobPlace) -> Example | None:
    """The job at a place, None if it is gone or has not failed. Raises Forbidden."""
    context = context_of(request)
    found = await jobs.show(context.pools.rest, [place])
    if not found or (found[0].dlq_moved_ms is None and found[0].state != "failed"):
        return None
    source = await _source(request, policy, found[0])
    worker = "" if source is None else await _worker(context, source, found[0])
    key = check_permission(request, SEE, found[0].topic)
    job = as_seen(key, found[0].topic, found[0])
    compares = source is not None and not job.hidden and sees_payloads(key, source.topic.name)
    good = await _good(request, source) if source is not None and compares else None
    bad = text_of(job.payload, job.content_type)
    other = bad if good is None else text_of(good.payload, good.content_type)
    lines = pairs(bad.lines, other.lines)
    error = job.last_error or NO_ERROR
    return Example(
        job=job,
        out_ms=out_ms(job),
        error=error[:MOST_ERROR],
        error_cut=len(error) > MOST_ERROR,
        worker=worker,
        deliveries=deliveries_of(job),
        seq=seq_in(policy, job),
        hidden=WHY if job.hidden else "",
        good=good,
        lines=lines,
        same=not any(line.differs for line in lines),
        cut=bad.cut or other.cut,
    )


async def _source(request: Request, policy: Policy, job: JobView) -> Policy | None:
    """The topic that the job failed in, None if it is gone or the visitor may not see it."""
    if job.original_topic is None or job.original_topic == policy.topic.name:
        return policy
    if not allows(request, SEE, job.original_topic):
        return None
    try:
        return await context_of(request).policies.queue(job.original_topic)
    except (TopicNotFound, NotAQueue):
        return None


async def _worker(context: Context, source: Policy, job: JobView) -> str:
    """The last worker, from the ledger. "" if finding it takes too long; the job's own page waits for it."""
    seq = seq_in(source, job)
    if seq is None:
        return ""
    events = await look_briefly(ledger.last(context.pools.rest, source.topic, seq, EVENTS))
    return next((event.node for event in events or () if event.node), "")


async def _good(request: Request, source: Policy) -> Good | None:
    db, topic, config = context_of(request).pools.rest, source.topic, source.config
    if config.replayable and allows(request, SEE_COMPLETED, topic.name):
        for done in await archive.page(db, topic, ArchivePart(config.replay_window_ms), 1):
            completed_ms = ms_of(done.finished_at)
            return Good(topic.name, done.seq, completed_ms, done.payload, done.content_type)
    match = JobMatch(states=("ready", "scheduled", "leased"))
    found = await jobs.find(db, topic, match, oldest_first=False, behind=BIGINT_MAX, limit=WAITING)
    for job in await jobs.show(db, [JobPlace(topic.name, topic.id, seq) for seq in found.seqs]):
        if job.last_error is None and job.original_topic is None:
            return Good(topic.name, job.seq, None, job.payload, job.content_type)
    return None


def text_of(payload: bytes, content_type: str | None) -> PayloadLines:
    """A payload as lines: JSON is indented and keeps its numbers as written, text stays as is, all else is in hex."""
    form, head = form_of(content_type), payload[:MOST_BYTES]
    cut = len(payload) > MOST_BYTES
    if form is PayloadForm.JSON and not cut:
        try:
            head = msgspec.json.format(payload, indent=2)
        except (msgspec.DecodeError, RecursionError):
            form = PayloadForm.TEXT
    if form is PayloadForm.BYTES or not is_utf8(payload):
        lines = [head[at : at + _HEX_BYTES].hex(" ") for at in range(0, len(head), _HEX_BYTES)]
    else:
        lines = head.decode(errors="replace").splitlines()
    short = [one if len(one) <= MOST_CHARACTERS else one[:MOST_CHARACTERS] + "…" for one in lines[:MOST_LINES]]
    return PayloadLines(short, cut or short != lines)


def pairs(left: Sequence[str], right: Sequence[str]) -> list[LinePair]:
    """The lines of both payloads side by side, equal lines in the same row.

    With hundreds of lines, common lines are matched only next to others, so that the cost is not quadratic.
    """
    found = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, left, right).get_opcodes():
        both = itertools.zip_longest(left[a:b], right[c:d])
        found += [LinePair(one, other, kind != "equal") for one, other in both]
    return found
