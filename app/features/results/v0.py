"""GET /v0/topics/:topic/jobs/:seq/result: the result or other outcome of a job."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from starlette.requests import Request

from app.base.keys import covers
from app.errors import InvalidRequest, Unauthorized
from app.features.explain.v0 import unknown
from app.features.results.outcomes import COMPLETED, PENDING, JobOutcome, Outcomes
from app.http.bounds import about
from app.http.calls import count_as
from app.http.departure import while_connected
from app.http.fields import SEQ, seq_in
from app.http.openapi import query
from app.http.route import Call
from app.http.sight import WHY, as_seen
from app.kernel.topics.policy import Policy

MAX_WAIT_MS: Final = 60_000
WAIT_MS: Final = query(
    "wait_ms",
    "How long to wait for the job's end, in ms.",
    {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_MS, "default": 0},
)
PARAMETERS: Final = (SEQ, WAIT_MS)
STATES: Final = (
    *("pending", "completed", "failed", "dead_lettered", "expired"),
    *("cancelled", "superseded", "deleted", "requeued"),
)
_MILLIS: Final = re.compile(r"[0-9]{1,6}\Z")

State = Annotated[str, about("pending: the job waits or runs. Else how it ended.", enum=list(STATES))]


class ShownProgress(msgspec.Struct):
    """The progress that the lease's holder has reported, and when, in ms since 1970."""

    percent: int
    note: str | None
    at: int


class DeadLetterPlace(msgspec.Struct):
    """The topic and seq of the dead letter."""

    topic: str
    seq: int


class ResultAnswer(msgspec.Struct, kw_only=True):
    """The outcome of a job. Times are in ms since 1970. Fields that don't apply are left out."""

    topic: str
    seq: int
    state: State
    result: Annotated[Raw | UnsetType, about("The result of a completed job, null if it has none.")] = UNSET
    hidden: Annotated[str | UnsetType, about("Why the result is not shown.")] = UNSET
    completed_at: int | UnsetType = UNSET
    expires_at: Annotated[int | UnsetType | None, about("Until when the result is kept. null: for ever.")] = UNSET
    ended_at: Annotated[int | UnsetType, about("When the job ended, if it was not completed.")] = UNSET
    error: Annotated[str | UnsetType | None, about("The last error. null: none.")] = UNSET
    dead_letter: Annotated[DeadLetterPlace | UnsetType, about("The dead letter, if it still exists.")] = UNSET
    progress: Annotated[
        ShownProgress | UnsetType, about("The progress of a pending job, if its holder reports it.")
    ] = UNSET


async def result(call: Call) -> ResultAnswer:
    """Show the result or other outcome of a job. With `wait_ms`, wait for its end."""
    policy, seq = await call.queue(), seq_in(call.request)
    outcome = await _find_outcome(call, policy, seq, _parse_wait_ms(call.request))
    if outcome is None:
        raise unknown(policy, seq)
    return _answer(call.topic, seq, as_seen(call.key, call.topic, outcome))


def _parse_wait_ms(request: Request) -> int:
    given = request.query_params.get("wait_ms", "0")
    if _MILLIS.match(given) is None or int(given) > MAX_WAIT_MS:
        raise InvalidRequest(f"wait_ms must be 0 to {MAX_WAIT_MS}.")
    return int(given)


async def _find_outcome(call: Call, policy: Policy, seq: int, wait_ms: int) -> JobOutcome | None:
    request, outcomes, covered = call.request, call.context.core(Outcomes), covers(call.key)
    if not wait_ms:
        return await outcomes.of(policy, seq, covers=covered)
    count_as(request, "result_wait")  # most of its time is waiting
    await request.body()
    outcome = await while_connected(request, outcomes.of(policy, seq, wait_ms / 1000, covers=covered))
    if not call.context.access.still_good(call.key):
        raise Unauthorized("This key was revoked or has expired.")
    return outcome


def _answer(topic: str, seq: int, outcome: JobOutcome) -> ResultAnswer:
    answer = ResultAnswer(topic=topic, seq=seq, state=outcome.state)
    if outcome.state == PENDING:
        if (progress := outcome.progress) is not None:
            answer.progress = ShownProgress(progress.percent, progress.note, progress.at_ms)
    elif outcome.state == COMPLETED:
        answer.completed_at = UNSET if outcome.at_ms is None else outcome.at_ms
        if outcome.hidden:
            answer.hidden = WHY
        else:
            answer.result = Raw((outcome.result or "null").encode())
            answer.expires_at = UNSET if outcome.result is None else outcome.expires_ms
    else:
        answer.ended_at, answer.error = UNSET if outcome.at_ms is None else outcome.at_ms, outcome.error
        answer.dead_letter = UNSET if outcome.letter is None else DeadLetterPlace(*outcome.letter)
    return answer
