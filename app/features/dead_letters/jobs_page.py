"""/admin/topics/{topic}/dead/jobs: failed jobs one by one, with a filter, and one of them in full."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.errors import Forbidden, InvalidRequest
from app.features.dead_letters import example
from app.features.dead_letters import page as clusters
from app.features.dead_letters.example import Example, deliveries_of, out_ms, seq_in
from app.features.dead_letters.failures import SILENCE
from app.features.dead_letters.page import may_see_letters
from app.features.dead_letters.requeues import AGES, requeue_of, selection_in
from app.features.jobs.operations import THE_BEGINNING, SearchPlace
from app.features.jobs.page import page_of
from app.features.jobs.redrives import Behind, Redrives
from app.features.saved_views import page as saved
from app.http.context import context_of
from app.kernel import jobs
from app.kernel.jobs import JobView
from app.kernel.model import Connection, Seq
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import BIGINT_MAX
from app.pages.frame import tabs
from app.pages.permissions import PURGE, REQUEUE, allows
from app.pages.render import page

MOST: Final = 50
_BEHIND: Final = re.compile(r"([0-9])\.([0-9]{1,17})\.([0-9]{1,19})\Z")


class FailedRow(msgspec.Struct, frozen=True):
    """A job in the list. `seq`: what a requeue finds it by, None if none does. `at`: what an address of this page calls
    it. `page`: the job's own page."""

    seq: int | None
    at: str
    page: str
    error: str
    out_ms: int
    deliveries: int
    tag: str
    key: str


async def show(request: Request) -> Response:
    """The page; the address has its filter. Raises InvalidRequest, Forbidden, TopicNotFound, NotAQueue, Unavailable."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    given = request.query_params
    selection, behind = selection_in(given), _behind(given.get("after", ""))
    policy = await context.policies.queue(name)
    if not may_see_letters(request, policy):
        raise Forbidden("The topic's dead letters are in a topic that you may not see.")
    requeue = await requeue_of(context, policy, selection.match, selection.seqs)
    places, following = await context.core(Redrives).page(requeue, behind, MOST)
    rows = await _rows(context.pools.rest, policy, places)
    cluster = await clusters.find(context, policy, selection.cluster)
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
    """The jobs at these places, in the order in which they failed for good. Payloads are read a part at a time."""
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
    """The line of an error that says most: of a Python traceback the last, else the first."""
    lines = [line.strip() for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return SILENCE
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


async def _example(request: Request, policy: Policy, at: str) -> Example | None:
    """The job that an address calls `at`. Raises InvalidRequest."""
    topic, _, seq = at.rpartition(":")
    if topic not in {policy.topic.name, policy.config.dead_letter} or re.fullmatch("[0-9]{1,18}", seq) is None:
        raise InvalidRequest("at is a job: its topic, and its seq behind a colon.")
    holder = await context_of(request).policies.queue(topic)
    return await example.read(request, policy, jobs.JobPlace(topic, holder.topic.id, Seq(int(seq))))


def _place(behind: Behind) -> str:
    micros = (behind.at.time - THE_BEGINNING) // timedelta(microseconds=1)
    return f"{behind.stage}.{micros}.{behind.at.seq}"


def _behind(given: str) -> Behind:
    if not given:
        return Behind()
    match = _BEHIND.match(given)
    if match is None:
        raise InvalidRequest("after is no place that a page leads to.")
    stage, micros, seq = map(int, match.groups())
    return Behind(stage, SearchPlace(THE_BEGINNING + timedelta(microseconds=micros), min(seq, BIGINT_MAX)))
