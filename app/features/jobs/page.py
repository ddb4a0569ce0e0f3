"""/admin/topics/{topic}/jobs/{seq}: a job, what happened to it, and why it is not running. Of one that is gone, what
the ledger has."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import covers
from app.errors import NotFound
from app.features.explain.explain import Explain
from app.features.explain.reasons import Reason, ReasonCode
from app.features.jobs import links as again
from app.features.jobs import payload_view as payloads
from app.features.jobs import timeline
from app.features.jobs.changes import no_job
from app.features.results.outcomes import Outcome, Outcomes
from app.http.context import context_of
from app.http.fields import seq_in
from app.http.sight import WHY, as_seen
from app.kernel import jobs as shown
from app.kernel import ledger
from app.kernel.jobs import Place, Shown
from app.kernel.topics.policy import check_name
from app.pages.frame import tabs
from app.pages.permissions import CHANGE_JOBS, SEE, allows, must_be_allowed
from app.pages.render import asks_for_live_part, look_briefly, page

MOST_EVENTS: Final = 200  # the latest
_OVER: Final = "What became of it"
_QUESTIONS: Final = {"leased": "What it does", **dict.fromkeys(("gone", "failed", "expired", "cancelled"), _OVER)}
_UNKNOWN: Final = Reason(
    ReasonCode.ENDED, "Nothing is known of it: it never was, or what happened to it is kept no longer."
)
WAITS: Final = frozenset({"ready", "scheduled", "blocked"})


class Said(msgspec.Struct, frozen=True):
    """What is said of a form that was not taken: as a whole, and of its fields; and what was typed."""

    status: int = 200
    message: str = ""
    wrong: Mapping[str, str] = {}
    typed: Mapping[str, str] = {}


def page_of(topic: str, seq: int) -> str:
    """Where a job is shown."""
    return f"/admin/topics/{topic}/jobs/{seq}"


def print_of(text: str) -> str:
    """By which a form tells whether a payload is the one that was shown."""
    return hashlib.sha256(text.encode()).hexdigest()


async def show(request: Request) -> Response:
    """The page. Raises InvalidRequest, TopicNotFound, NotAQueue, Unavailable."""
    return await show_with(request, Said())


async def show_with(request: Request, said: Said) -> Response:
    """The page, with what is said of the form that was sent from it."""
    context, name, seq = context_of(request), check_name(request.path_params["topic"]), seq_in(request)
    key = must_be_allowed(request, SEE, name)
    may_name = covers(key)
    policy = await context.policies.queue(name)
    db, topic = context.pools.rest, policy.topic
    job = next(iter(await shown.show(db, [Place(topic.name, topic.id, seq)])), None)
    # The ledger has no index by job: where there is much of it, the page is there before what happened is.
    look, moves = ledger.last(db, topic, seq, MOST_EVENTS + 1), asks_for_live_part(request)
    events = await look if moves else await look_briefly(look)
    last = (events or []) if job is None else None  # of one that is there they may be older than its end
    found = None
    if job is not None or events is not None:
        found = await context.core(Explain).job(policy, seq, covers=may_name, last=last)
        if found is None and not moves:
            return _missing(request, name, no_job(policy, seq))
    outcome = await context.core(Outcomes).of(policy, seq, covers=may_name, last=last)
    job = None if job is None else as_seen(key, name, job)
    outcome = None if outcome is None else as_seen(key, name, outcome)
    seen = job if job is not None and not job.hidden else None
    now_ms = round(time.time() * 1000) if found is None or found.row is None else found.row.now_ms
    steps = timeline.steps((events or [])[MOST_EVENTS - 1 :: -1], now_ms, may_name)
    state = "gone" if job is None else job.state
    may_change = allows(request, CHANGE_JOBS, name)
    guarded = context.access.directory.guarded
    return page(
        request,
        "job.html",
        said.status,
        title=f"Job {seq} of {name}",
        topic=name,
        tabs=tabs(request, name),
        seq=seq,
        here=page_of(name, seq),
        job=job,
        state=state,
        question=_QUESTIONS.get(state, "Why it is not running"),
        now_ms=now_ms,
        late=events is None,
        reasons=found.verdict.reasons if found else [] if events is None else [_UNKNOWN],
        wait_ms=None if found is None else found.verdict.wait_ms,
        actions=_actions(job) if may_change else frozenset(),
        outcome=outcome,
        result=_result(outcome),
        steps=steps,
        earlier=len(events or ()) > MOST_EVENTS,
        parts=timeline.strip(steps, now_ms),
        origin=job is not None and job.original_topic is not None and may_name(job.original_topic),
        texts=() if job is None else _texts(job),
        times=() if job is None else _times(job),
        hidden=WHY,
        payload=None if job is None else partial(payloads.shown, job.payload, job.content_type),
        edited=None if seen is None else partial(payloads.editable, seen.payload, seen.content_type),
        print_of=print_of,
        metadata=None if job is None or job.metadata is None else partial(_json, job.metadata),
        command=None if seen is None else partial(again.command, again.base_of(request), name, seen, guarded=guarded),
        guarded=guarded,
        said=said,
    )


def _missing(request: Request, topic: str, error: NotFound) -> Response:
    """The page of a job that there is not, among those of its topic."""
    return page(
        request,
        "job_missing.html",
        error.status,
        title=f"{error.status}",
        topic=topic,
        tabs=tabs(request, topic),
        message=error.message,
    )


def _actions(job: Shown | None) -> frozenset[str]:
    """What can be done to it, as its state is now; whether it still is, the verb sees."""
    if job is None:
        return frozenset()
    found = set()
    if job.state in WAITS:
        found |= {"cancel", "change"}
    if job.state == "leased" and not job.cancelled:
        found.add("cancel")
    if job.state == "leased":
        found.add("release")
    if job.state == "scheduled":
        found.add("run")
    if job.state in {"failed", "expired"} or (job.dlq_moved_ms is not None and job.state in WAITS):
        found.add("requeue")
    if job.original_topic is None:
        found.add("clone")
    return frozenset(found)


def _texts(job: Shown) -> list[tuple[str, str | None]]:
    return [
        ("Key", job.key),
        ("Tag", job.tag),
        ("Tenant", job.tenant),
        ("Group", job.group),
        ("Holder", job.node if job.state == "leased" else None),
        ("Last error", job.last_error),
    ]


def _times(job: Shown) -> list[tuple[str, int | None]]:
    return [
        ("Enqueued", job.created_ms),
        ("Changed", job.updated_ms),
        ("Expires", job.expires_ms),
        ("Became a dead letter", job.dlq_moved_ms),
    ]


def _result(outcome: Outcome | None) -> partial[payloads.Shown] | None:
    return None if outcome is None or outcome.result is None else partial(_json, outcome.result)


def _json(text: str) -> payloads.Shown:
    return payloads.shown(text.encode(), None)
