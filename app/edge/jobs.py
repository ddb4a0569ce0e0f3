"""What somebody asks of jobs by words, for whichever edge they come by. docs/jobs.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, assert_never

import msgspec
from starlette.requests import Request

from app.audit import trail
from app.audit.trail import Action
from app.edge.context import Context, context_of
from app.engine.changes import Counted
from app.errors import InvalidRequest, KeyConflict, TopicNotFound
from app.queue.model import MAX_GROUP, MAX_JOB_KEY, MAX_TAG_BYTES, Seq
from app.queue.redrive import First, Outcome
from app.queue.shown import Match
from app.topics.config import BIGINT_MAX, MAX_TENANT, TEN_YEARS_MS, Policy

STATES: Final = ("ready", "scheduled", "blocked", "leased", "failed", "expired", "cancelled")
_LONGEST: Final = {"tenant": MAX_TENANT, "tag": MAX_TAG_BYTES, "key": MAX_JOB_KEY, "group": MAX_GROUP}
_SEQ: Final = re.compile(r"[0-9]{1,19}\Z")
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")


def match_of(given: Mapping[str, str]) -> Match:
    """Which jobs are meant, by state, tenant, tag, key, group and older_than_ms, as far as they are given.

    Raises InvalidRequest.
    """
    state = given.get("state")
    if state is not None and state not in STATES:
        raise InvalidRequest(f"state must be one of {', '.join(STATES)}.")
    for name, most in _LONGEST.items():
        if len(given.get(name, "")) > most:
            raise InvalidRequest(f"{name} is longer than {most} characters.")
        if "\0" in given.get(name, ""):
            raise InvalidRequest(f"{name} can't have a NUL.")
    older = whole(given, "older_than_ms", 0) if "older_than_ms" in given else None
    if older is not None and not 0 <= older <= TEN_YEARS_MS:
        raise InvalidRequest(f"older_than_ms must be 0 to {TEN_YEARS_MS}.")
    states = None if state is None else [state]
    return Match(states, given.get("tenant"), given.get("tag"), given.get("key"), given.get("group"), older)


def whole(given: Mapping[str, str], name: str, default: int) -> int:
    """A whole number. Raises InvalidRequest."""
    text = given.get(name)
    if text is None:
        return default
    if _WHOLE.match(text) is None:
        raise InvalidRequest(f"{name} must be a whole number.")
    return int(text)


def seq_in(request: Request) -> Seq:
    """The seq that a request's path names. Raises InvalidRequest."""
    given: str = request.path_params["seq"]
    if _SEQ.match(given) is None or not 0 < int(given) <= BIGINT_MAX:
        raise InvalidRequest("A job's seq is a whole number from 1 on.")
    return Seq(int(given))


async def cancel_matching(request: Request, policy: Policy, match: Match) -> Counted:
    """Cancel the jobs that match at this moment, in batches, with an entry in the audit trail ahead of it: what breaks
    off has done a part. Who asks was let do that. `match` has no states, and is not all."""
    assert match.states is None
    assert not match.is_all
    context = context_of(request)
    detail = {name: value for name, value in msgspec.structs.asdict(match).items() if value is not None}
    by = context.access.actor(request)
    await trail.record(context.pools.rest, by, Action.JOBS_CANCELLED, policy.topic.name, {"filter": detail})
    return await context.engine.changes.cancel_matching(policy, match)


async def requeue_one(context: Context, policy: Policy, seq: Seq, starts: Sequence[str]) -> First | None:
    """Where a job is that was out, and has another life now; None if it is not out. `starts`: how the names of topics
    begin that it may go to, none for all. Raises KeyConflict, TopicNotFound."""
    done = await context.engine.redrives.requeue((policy.topic.name, policy.topic.id), [seq], starts)
    if not done:
        return None
    (one,) = done
    match one.outcome:
        case Outcome.KEY_CONFLICT:
            raise KeyConflict("A pending message has its key. It stays where it is.", {"topic": one.topic})
        case Outcome.TOPIC_GONE:
            raise TopicNotFound(one.topic)
        case Outcome.REQUEUED:
            return one.job
        case _:
            assert_never(one.outcome)
