"""GET /v0/topics/:topic/jobs/:seq/result: what a worker handed in, or how the job ended otherwise."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct
from app.api.bounds import about
from app.api.fields import encode
from app.api.openapi import TOPIC, operation
from app.api.results import WAIT_MS, State, outcome_of, wait_ms_of
from app.api.v0.bodies import Performance
from app.api.v0.explain import SEQ, job_asked, unknown
from app.api.v0.fields import answer
from app.edge.sight import WHY
from app.engine.outcomes import COMPLETED, PENDING, Outcome

router = direct.router("jobs")


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
    outcome = await outcome_of(request, key, policy, seq, wait_ms_of(request))
    if outcome is None:
        raise unknown(policy, seq)
    fields = {"topic": policy.topic.name, "seq": seq, "state": outcome.state, **_shown(outcome)}
    return answer(encode(fields)[1:-1], began)


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
