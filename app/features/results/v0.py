"""GET /v0/topics/:topic/jobs/:seq/result: what a worker handed in, or how the job ended otherwise."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Key, covers
from app.errors import InvalidRequest, Unauthorized
from app.features.explain.v0 import SEQ, job_asked, unknown
from app.features.results.outcomes import COMPLETED, PENDING, Outcome, Outcomes
from app.http import direct
from app.http.bounds import about
from app.http.calls import count_as
from app.http.context import context_of
from app.http.departure import while_connected
from app.http.fields import encode
from app.http.openapi import TOPIC, operation, query
from app.http.sight import WHY, as_seen
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer

if TYPE_CHECKING:
    from app.kernel.topics.config import Policy

router = direct.router("jobs")

MAX_WAIT_MS: Final = 60_000
WAIT_MS: Final = query(
    "wait_ms",
    "For how long to wait for the job's end, in ms.",
    {"type": "integer", "minimum": 0, "maximum": MAX_WAIT_MS, "default": 0},
)
STATES: Final = (
    *("pending", "completed", "failed", "dead_lettered", "expired"),
    *("cancelled", "superseded", "deleted", "requeued"),
)
_MILLIS: Final = re.compile(r"[0-9]{1,6}\Z")

State = Annotated[str, about("pending: it waits, or is worked on. Else how it ended.", enum=list(STATES))]


class ShownProgress(msgspec.Struct):
    """How far the holder of a lease says it is, and since when, in ms since 1970."""

    percent: int
    note: str | None
    at: int


class DeadLetterPlace(msgspec.Struct):
    """Which job it is now."""

    topic: str
    seq: int


class ResultAnswer(msgspec.Struct, kw_only=True):
    """What became of a job. Times are in ms since 1970; what it does not have is left out."""

    topic: str
    seq: int
    state: State
    result: Annotated[Raw | UnsetType, about("Of a completed job: what was handed in, null if nothing was.")] = UNSET
    hidden: Annotated[str | UnsetType, about("Why the result of a completed one is not shown.")] = UNSET
    completed_at: int | UnsetType = UNSET
    expires_at: Annotated[int | UnsetType | None, about("Until when the result is kept; null: for ever.")] = UNSET
    ended_at: Annotated[int | UnsetType, about("When it ended otherwise.")] = UNSET
    error: Annotated[str | UnsetType | None, about("What went wrong last; null: nobody said.")] = UNSET
    dead_letter: Annotated[DeadLetterPlace | UnsetType, about("Where it is now.")] = UNSET
    progress: Annotated[ShownProgress | UnsetType, about("Of a pending job, if its holder says so.")] = UNSET
    performance: Performance


@router.get(
    "/v0/topics/{topic}/jobs/{seq}/result",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, SEQ, WAIT_MS], answers={200: ResultAnswer}, errors=[400, 401, 403, 404, 409, 503]
    ),
)
async def result(request: Request) -> Response:
    """What a job was completed with, or how it ended otherwise; with `wait_ms`, wait so long for its end."""
    began = time.perf_counter()
    policy, seq, key = await job_asked(request, {"wait_ms"})
    outcome = await _find_outcome(request, key, policy, seq, _parse_wait_ms(request))
    if outcome is None:
        raise unknown(policy, seq)
    fields = {"topic": policy.topic.name, "seq": seq, "state": outcome.state, **_shown(outcome)}
    return answer(encode(fields)[1:-1], began)


def _parse_wait_ms(request: Request) -> int:
    """For how long the caller would wait. Raises InvalidRequest."""
    given = request.query_params.get("wait_ms", "0")
    if _MILLIS.match(given) is None or int(given) > MAX_WAIT_MS:
        raise InvalidRequest(f"wait_ms must be 0 to {MAX_WAIT_MS}.")
    return int(given)


async def _find_outcome(request: Request, key: Key | None, policy: Policy, seq: int, wait_ms: int) -> Outcome | None:
    """What became of a job, waiting for it for as long as the caller stays. None if nothing is kept of it.
    Raises ClientDisconnect, and Unauthorized where the key is good no longer."""
    context = context_of(request)
    outcomes = context.core(Outcomes)
    if not wait_ms:
        outcome = await outcomes.of(policy, seq, covers=covers(key))
        return None if outcome is None else as_seen(key, policy.topic.name, outcome)
    count_as(request, "result_wait")  # its time is the wait's
    await request.body()
    outcome = await while_connected(request, outcomes.of(policy, seq, wait_ms / 1000, covers=covers(key)))
    if not context.access.still_good(key):
        raise Unauthorized("This key was revoked or has expired.")
    return None if outcome is None else as_seen(key, policy.topic.name, outcome)


def _shown(outcome: Outcome) -> dict[str, Any]:
    if outcome.state == PENDING:
        said = outcome.progress
        return {} if said is None else {"progress": ShownProgress(said.percent, said.note, said.at_ms)}
    if outcome.state == COMPLETED and outcome.hidden:
        return {"hidden": WHY, "completed_at": outcome.at_ms}
    if outcome.state == COMPLETED:
        shown: dict[str, Any] = {"result": Raw((outcome.result or "null").encode()), "completed_at": outcome.at_ms}
        return shown if outcome.result is None else {**shown, "expires_at": outcome.expires_ms}
    shown = {"ended_at": outcome.at_ms, "error": outcome.error}
    return shown if outcome.letter is None else {**shown, "dead_letter": DeadLetterPlace(*outcome.letter)}
