"""/admin/topics/{topic}/dead/jobs: what is out, one by one, or what fits a filter; and one of them in full."""

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
from app.features.dead_letters.example import Example, out_ms, seq_in
from app.features.dead_letters.failures import SILENCE
from app.features.dead_letters.page_filters import AGES, asked_of, may_see_letters, wanted
from app.features.jobs.page import page_of
from app.features.jobs.redrive_rows import THE_BEGINNING, Place
from app.features.jobs.redrives import Behind, Redrives
from app.features.saved_views import page as saved
from app.http.context import context_of
from app.kernel import jobs as shown
from app.kernel.jobs import Shown
from app.kernel.model import Connection, Seq
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import BIGINT_MAX
from app.pages.frame import tabs
from app.pages.permissions import PURGE, REQUEUE, allows
from app.pages.render import page

MOST: Final = 50
_BEHIND: Final = re.compile(r"([0-9])\.([0-9]{1,17})\.([0-9]{1,19})\Z")


class Row(msgspec.Struct, frozen=True):
    """A job in the list. `seq` is what a requeue finds it by, None if none does; `at` is what its address has; `page`:
    where all of it is told."""

    seq: int | None
    at: str
    page: str
    error: str
    out_ms: int
    deliveries: int
    tag: str
    key: str


async def show(request: Request) -> Response:
    """The page. What is asked for stands in the address. Raises InvalidRequest, Forbidden, TopicNotFound, NotAQueue,
    Unavailable."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    given = request.query_params
    asked, behind = asked_of(given), _behind(given.get("after", ""))
    policy = await context.policies.queue(name)
    if not may_see_letters(request, policy):
        raise Forbidden("The topic's dead letters are in a topic that you may not see.")
    places, following = await context.core(Redrives).page(await wanted(context, policy, asked), behind, MOST)
    rows = await _rows(context.pools.rest, policy, places)
    cluster = await clusters.find(context, policy, asked.cluster)
    chosen = given.get("at", "")
    newest = [] if cluster is None else [f"{cluster.failure.topic}:{cluster.failure.seq}"]
    one = None
    for at in [chosen] if chosen else [*newest, *(row.at for row in rows[-1:] if asked.cluster)]:
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
        asked=asked,
        kept=await saved.of(request, asked.address(f"{base}/jobs"), worth=bool(asked.given)),
        ages=AGES,
        cluster=cluster,
        one=one,
        gone=bool(chosen) and one is None,
        rows=rows,
        links={row.at: asked.address(f"{base}/jobs", at=row.at, after=here) for row in rows},
        first=asked.address(f"{base}/jobs") if here else "",
        following="" if following is None else asked.address(f"{base}/jobs", after=_place(following)),
        requeue=asked.address(f"{base}/requeue"),
        purge=asked.address(f"{base}/purge") if asked.cluster else "",
        may_requeue=allows(request, REQUEUE, name),
        may_purge=allows(request, PURGE, name),
    )


async def _rows(db: Connection, policy: Policy, places: list[shown.Place]) -> list[Row]:
    """The jobs at these places, in the order in which they went out. Payloads are read a part at a time."""
    rows: list[Row] = []
    while places:
        part = await shown.show(db, places)
        if not part:
            break
        rows += [_row(policy, job) for job in part]
        last = shown.Place(part[-1].topic, part[-1].topic_id, part[-1].seq)
        places = places[places.index(last) + 1 :]
    return sorted(rows, key=lambda row: row.out_ms)


def _row(policy: Policy, job: Shown) -> Row:
    return Row(
        seq_in(policy, job),
        f"{job.topic}:{job.seq}",
        page_of(job.topic, job.seq),
        summary(job.last_error),
        out_ms(job),
        job.deliveries if job.dlq_moved_ms is None else job.original_deliveries or 0,
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
    """The job at a place, as rows have it. Raises InvalidRequest."""
    topic, _, seq = at.rpartition(":")
    if topic not in {policy.topic.name, policy.config.dead_letter} or re.fullmatch("[0-9]{1,18}", seq) is None:
        raise InvalidRequest("at is a job: its topic, and its seq behind a colon.")
    holder = await context_of(request).policies.queue(topic)
    return await example.read(request, policy, shown.Place(topic, holder.topic.id, Seq(int(seq))))


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
    return Behind(stage, Place(THE_BEGINNING + timedelta(microseconds=micros), min(seq, BIGINT_MAX)))
