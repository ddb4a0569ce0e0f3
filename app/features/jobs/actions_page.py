"""The actions of a job's page: release, cancel, change, clone and requeue, by the functions of the API's verbs."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.errors import HoldfastError, InvalidRequest, NotFound
from app.features.jobs import filters
from app.features.jobs import links as again
from app.features.jobs.change_rows import Change, Payload
from app.features.jobs.changes import Changes
from app.features.jobs.page import Said, page_of, print_of, show_with
from app.features.jobs.requests import Leases, release, requeue_one
from app.http.context import Context, context_of
from app.http.fields import seq_in
from app.http.payloads import JSON, kept
from app.kernel.enqueue.producer import Placed
from app.kernel.model import MAX_TAG_BYTES, Seq
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import TEN_YEARS_MS
from app.pages.permissions import CHANGE_JOBS, must_be_allowed
from app.pages.session import fields_of

_LINES: Final = re.compile("[\r\n]+")


class Target(msgspec.Struct, frozen=True):
    """The job of the path, in a topic that there is."""

    context: Context
    policy: Policy
    seq: Seq

    @property
    def page(self) -> str:
        """Where it is shown."""
        return page_of(self.policy.topic.name, self.seq)


async def cancel(request: Request) -> Response:
    """End it if it waits; mark it for its holder if it is leased."""

    async def run(job: Target) -> str:
        done = await job.context.core(Changes).cancel(job.policy, [job.seq])
        if not done.gone | done.marked:
            raise NotFound("There was nothing to cancel: it is gone, failed or expired.")
        return job.page

    return await _tried(request, run)


async def take_back(request: Request) -> Response:
    """Take its lease back from the worker that the page named."""
    node = (await fields_of(request)).get("node") or None

    async def run(job: Target) -> str:
        taken = await release(request, job.policy, Leases(seqs=[job.seq], node=node))
        if not taken.released:
            raise NotFound("There was no lease to take back: it has ended, or another worker holds the job.")
        return job.page

    return await _tried(request, run)


async def clone(request: Request) -> Response:
    """Enqueue the same once more, and go there."""

    async def run(job: Target) -> str:
        given = await job.context.core(Changes).show(job.policy, job.seq)
        size = len(given.payload) + len((given.metadata or "").encode())
        placed = await job.context.engine.enqueues.place(job.policy, again.batch_of(given), size)
        if isinstance(placed, Placed) and placed.duplicates:
            raise InvalidRequest("Nothing was enqueued: within the topic's dedupe window, it is a duplicate.")
        (seq,) = placed.seqs if isinstance(placed, Placed) else placed
        return page_of(job.policy.topic.name, seq)

    return await _tried(request, run)


async def requeue(request: Request) -> Response:
    """Give one that is out another life, and go where it is then."""
    key = must_be_allowed(request, CHANGE_JOBS, request.path_params["topic"])

    async def run(job: Target) -> str:
        now = await requeue_one(job.context, job.policy, job.seq, () if key is None else key.prefixes)
        if now is None:
            raise NotFound("There was nothing to requeue: it is not out, or somebody has it.")
        return page_of(now.topic, now.seq)

    return await _tried(request, run)


async def change(request: Request) -> Response:
    """Change what the form says otherwise than it was."""
    fields = await fields_of(request)
    to, wrong = change_of(fields)
    if wrong:
        return await show_with(request, Said(400, wrong=wrong, typed=fields))

    async def run(job: Target) -> str:
        payload = await _payload_of(job, fields)
        if to == Change() and payload is None:
            raise InvalidRequest("Nothing is to be changed.")
        await job.context.core(Changes).change(job.policy, job.seq, replace(to, payload=payload))
        return job.page

    return await _tried(request, run, fields)


def change_of(fields: Mapping[str, str]) -> tuple[Change, dict[str, str]]:
    """What is to be different from how the form was shown, and what is wrong with its fields. `delay` is a length of
    time, or now; an empty one changes nothing."""
    wrong: dict[str, str] = {}
    priority, tag, delay_ms = None, None, None
    clears = frozenset[str]()
    given = fields.get("priority", "").strip()
    if given != fields.get("priority_was", ""):
        if given in set("0123456789"):
            priority = int(given)
        else:
            wrong["priority"] = "A priority is 0 to 9."
    given = fields.get("tag", "")
    if given != _LINES.sub("", fields.get("tag_was", "")):  # of which a browser's field shows none
        tag, clears = (given, clears) if given else (None, frozenset({"tag"}))
        if len(given.encode()) > MAX_TAG_BYTES or "\0" in given:
            wrong["tag"] = f"A tag has {MAX_TAG_BYTES} bytes at most, and no NUL."
    given = fields.get("delay", "").strip()
    if given:
        try:
            delay_ms = 0 if given in {"now", "0"} else filters.milliseconds(given)
        except InvalidRequest as error:
            wrong["delay"] = error.message
        if delay_ms is not None and delay_ms > TEN_YEARS_MS:
            wrong["delay"] = "That is more than ten years."
    return Change(tag=tag, priority=priority, delay_ms=delay_ms, clears=clears), wrong


async def _payload_of(job: Target, fields: Mapping[str, str]) -> Payload | None:
    """The payload that the form has, of the type that it had; None where it is the one that was shown. Raises
    InvalidRequest, NotFound."""
    text = fields.get("data", "").replace("\r\n", "\n")  # as forms send each end of a line
    if print_of(text) == fields.get("data_was", print_of("")):
        return None
    content_type = (await job.context.core(Changes).show(job.policy, job.seq)).content_type
    payload = text.encode()
    return Payload(payload, kept(payload, content_type or JSON))


async def _tried(
    request: Request, run: Callable[[Target], Awaitable[str]], typed: Mapping[str, str] | None = None
) -> Response:
    """Do it and go where it says; what is refused is said on the job's page. Raises TopicNotFound, NotAQueue."""
    context, seq = context_of(request), seq_in(request)
    policy = await context.policies.queue(check_name(request.path_params["topic"]))
    try:
        there = await run(Target(context, policy, seq))
    except HoldfastError as error:
        return await show_with(request, Said(error.status, error.message, typed=typed or {}))
    return RedirectResponse(there, 303)
