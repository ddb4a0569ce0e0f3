"""/admin/topics/{topic}/jobs/{seq}: a job, its history, why it is not running, and actions on it.

The actions are release, cancel, change, clone and requeue. A job that is gone is shown from the ledger.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.keys import covers
from app.errors import HoldfastError, InvalidRequest, NotFound
from app.features.explain.explain import Explain
from app.features.explain.reasons import Reason, ReasonCode
from app.features.jobs import filters, job_parts
from app.features.jobs.changes import Change, Changes, Payload, no_job
from app.features.jobs.first_job import place_one
from app.features.jobs.requests import Leases, release, requeue_one
from app.features.results.outcomes import JobOutcome, Outcomes
from app.http.context import Context, context_of
from app.http.fields import seq_in
from app.http.payloads import JSON, stored_type
from app.http.sight import WHY, as_seen
from app.kernel import jobs, ledger
from app.kernel.jobs import JobPlace, JobView
from app.kernel.model import MAX_TAG_BYTES, Seq
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import TEN_YEARS_MS
from app.pages.frame import tabs
from app.pages.permissions import CHANGE_JOBS, SEE, allows, check_permission
from app.pages.render import asks_for_live_part, look_briefly, page
from app.pages.session import fields_of

MOST_EVENTS: Final = 200  # the latest
_HEADINGS: Final = {
    "leased": "Where it is running",
    **dict.fromkeys(("gone", "failed", "expired", "cancelled"), "What became of it"),
}
_UNKNOWN: Final = Reason(
    ReasonCode.ENDED, "There is no record of this job: it never existed, or the ledger no longer has its events."
)
WAITS: Final = frozenset({"ready", "scheduled", "blocked"})
_LINES: Final = re.compile("[\r\n]+")


class FormReply(msgspec.Struct, frozen=True):
    """Why a form was refused, as a whole (`message`) and by field (`wrong`), and the values that were typed."""

    status: int = 200
    message: str = ""
    wrong: Mapping[str, str] = {}
    typed: Mapping[str, str] = {}


def page_of(topic: str, seq: int) -> str:
    return f"/admin/topics/{topic}/jobs/{seq}"


def print_of(text: str) -> str:
    """A payload's fingerprint. The form sends it back to tell whether the payload was edited."""
    return hashlib.sha256(text.encode()).hexdigest()


async def show(request: Request) -> Response:
    """Render the page. Raises InvalidRequest, TopicNotFound, NotAQueue, Unavailable."""
    return await show_with(request, FormReply())


async def show_with(request: Request, reply: FormReply) -> Response:
    """Render the page with the reply to a form that was sent from it."""
    context, name, seq = context_of(request), check_name(request.path_params["topic"]), seq_in(request)
    key = check_permission(request, SEE, name)
    may_name = covers(key)
    policy = await context.policies.queue(name)
    db, topic = context.pools.rest, policy.topic
    job = next(iter(await jobs.show(db, [JobPlace(topic.name, topic.id, seq)])), None)
    # The ledger has no index by job. On a large ledger the page comes first, and the history follows.
    look, moves = ledger.last(db, topic, seq, MOST_EVENTS + 1), asks_for_live_part(request)
    events = await look if moves else await look_briefly(look)
    last = (events or []) if job is None else None  # if the job exists, its end may come after these events
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
    steps = job_parts.timeline((events or [])[MOST_EVENTS - 1 :: -1], now_ms, may_name)
    state = "gone" if job is None else job.state
    may_change = allows(request, CHANGE_JOBS, name)
    guarded = context.access.directory.guarded
    return page(
        request,
        "job.html",
        reply.status,
        title=f"Job {seq} of {name}",
        topic=name,
        tabs=tabs(request, name),
        seq=seq,
        here=page_of(name, seq),
        job=job,
        state=state,
        question=_HEADINGS.get(state, "Why it is not running"),
        now_ms=now_ms,
        late=events is None,
        reasons=found.verdict.reasons if found else [] if events is None else [_UNKNOWN],
        wait_ms=None if found is None else found.verdict.wait_ms,
        actions=_actions(job) if may_change else frozenset(),
        outcome=outcome,
        result=_result(outcome),
        steps=steps,
        earlier=len(events or ()) > MOST_EVENTS,
        parts=job_parts.strip_of(steps, now_ms),
        origin=job is not None and job.original_topic is not None and may_name(job.original_topic),
        texts=() if job is None else _texts(job),
        times=() if job is None else _times(job),
        hidden=WHY,
        payload=None if job is None else partial(job_parts.view_payload, job.payload, job.content_type),
        edited=None if seen is None else partial(job_parts.text_to_edit, seen.payload, seen.content_type),
        print_of=print_of,
        metadata=None if job is None or job.metadata is None else partial(_json, job.metadata),
        command=None
        if seen is None
        else partial(job_parts.clone_command, job_parts.base_of(request), name, seen, guarded=guarded),
        guarded=guarded,
        reply=reply,
    )


def _missing(request: Request, topic: str, error: NotFound) -> Response:
    return page(
        request,
        "job_missing.html",
        error.status,
        title=f"{error.status}",
        topic=topic,
        tabs=tabs(request, topic),
        message=error.message,
    )


def _actions(job: JobView | None) -> frozenset[str]:
    """The actions that the job's state allows. Each action checks again."""
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


def _texts(job: JobView) -> list[tuple[str, str | None]]:
    return [
        ("Key", job.key),
        ("Tag", job.tag),
        ("Tenant", job.tenant),
        ("Group", job.group),
        ("Worker", job.node if job.state == "leased" else None),
        ("Last error", job.last_error),
    ]


def _times(job: JobView) -> list[tuple[str, int | None]]:
    return [
        ("Enqueued", job.created_ms),
        ("Changed", job.updated_ms),
        ("Expires", job.expires_ms),
        ("Became a dead letter", job.dlq_moved_ms),
    ]


def _result(outcome: JobOutcome | None) -> partial[job_parts.PayloadView] | None:
    return None if outcome is None or outcome.result is None else partial(_json, outcome.result)


def _json(text: str) -> job_parts.PayloadView:
    return job_parts.view_payload(text.encode(), None)


class Target(msgspec.Struct, frozen=True):
    context: Context
    policy: Policy
    seq: Seq

    @property
    def page(self) -> str:
        return page_of(self.policy.topic.name, self.seq)


async def cancel(request: Request) -> Response:
    """Cancel the job: delete it if it waits, tell its worker if it is leased."""

    async def run(job: Target) -> str:
        done = await job.context.core(Changes).cancel(job.policy, [job.seq])
        if not done.gone | done.marked:
            raise NotFound("The job can't be cancelled: it is gone, failed or expired.")
        return job.page

    return await _run(request, run)


async def take_back(request: Request) -> Response:
    """Take the lease back from the worker that the page named."""
    node = (await fields_of(request)).get("node") or None

    async def run(job: Target) -> str:
        result = await release(request, job.policy, Leases(seqs=[job.seq], node=node))
        if not result.released:
            raise NotFound("The job can't be released: its lease has ended, or another worker holds it now.")
        return job.page

    return await _run(request, run)


async def clone(request: Request) -> Response:
    """Enqueue a copy of the job and go to the copy's page."""

    async def run(job: Target) -> str:
        given = await job.context.core(Changes).show(job.policy, job.seq)
        size = len(given.payload) + len((given.metadata or "").encode())
        seq = await place_one(job.context, job.policy, job_parts.batch_of(given), size)
        return page_of(job.policy.topic.name, seq)

    return await _run(request, run)


async def requeue(request: Request) -> Response:
    """Requeue a failed job and go to its new page."""
    key = check_permission(request, CHANGE_JOBS, request.path_params["topic"])

    async def run(job: Target) -> str:
        now = await requeue_one(job.context, job.policy, job.seq, () if key is None else key.prefixes)
        if now is None:
            raise NotFound("The job can't be requeued: it has not failed or expired, or a worker holds it.")
        return page_of(now.topic, now.seq)

    return await _run(request, run)


async def change(request: Request) -> Response:
    """Change the fields that were edited in the form."""
    fields = await fields_of(request)
    to, wrong = change_of(fields)
    if wrong:
        return await show_with(request, FormReply(400, wrong=wrong, typed=fields))

    async def run(job: Target) -> str:
        payload = await _payload_of(job, fields)
        if to == Change() and payload is None:
            raise InvalidRequest("No field was changed.")
        await job.context.core(Changes).change(job.policy, job.seq, replace(to, payload=payload))
        return job.page

    return await _run(request, run, fields)


def change_of(fields: Mapping[str, str]) -> tuple[Change, dict[str, str]]:
    """The change that the edited fields ask for, and errors by field.

    `delay` is a length of time or "now". Empty, it changes nothing.
    """
    wrong: dict[str, str] = {}
    priority, tag, delay_ms = None, None, None
    clears = frozenset[str]()
    given = fields.get("priority", "").strip()
    if given != fields.get("priority_was", ""):
        if given in set("0123456789"):
            priority = int(given)
        else:
            wrong["priority"] = "priority must be 0 to 9."
    given = fields.get("tag", "")
    if given != _LINES.sub("", fields.get("tag_was", "")):  # a browser's field drops line ends
        tag, clears = (given, clears) if given else (None, frozenset({"tag"}))
        if len(given.encode()) > MAX_TAG_BYTES or "\0" in given:
            wrong["tag"] = f"tag must have at most {MAX_TAG_BYTES} bytes and no NUL."
    given = fields.get("delay", "").strip()
    if given:
        try:
            delay_ms = 0 if given in {"now", "0"} else filters.milliseconds(given)
        except InvalidRequest as error:
            wrong["delay"] = error.message
        if delay_ms is not None and delay_ms > TEN_YEARS_MS:
            wrong["delay"] = "delay must be at most ten years."
    return Change(tag=tag, priority=priority, delay_ms=delay_ms, clears=clears), wrong


async def _payload_of(job: Target, fields: Mapping[str, str]) -> Payload | None:
    """The form's payload with the job's content type, None if not edited. Raises InvalidRequest, NotFound."""
    text = fields.get("data", "").replace("\r\n", "\n")  # forms send each line end as CRLF
    if print_of(text) == fields.get("data_was", print_of("")):
        return None
    content_type = (await job.context.core(Changes).show(job.policy, job.seq)).content_type
    payload = text.encode()
    return Payload(payload, stored_type(payload, content_type or JSON))


async def _run(
    request: Request, run: Callable[[Target], Awaitable[str]], typed: Mapping[str, str] | None = None
) -> Response:
    """Run an action and go to the page that it returns. The job's page shows a refusal.

    Raises TopicNotFound, NotAQueue.
    """
    context, seq = context_of(request), seq_in(request)
    policy = await context.policies.queue(check_name(request.path_params["topic"]))
    try:
        there = await run(Target(context, policy, seq))
    except HoldfastError as error:
        return await show_with(request, FormReply(error.status, error.message, typed=typed or {}))
    return RedirectResponse(there, 303)
