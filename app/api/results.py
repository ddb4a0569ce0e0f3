"""What workers hand in and say of their jobs, and the wait for it, for every dialect. docs/results.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw
from starlette.requests import Request

from app.api.bounds import about, text
from app.api.calls import count_as
from app.api.departure import while_connected
from app.api.fields import check_text
from app.api.openapi import query
from app.edge.context import context_of
from app.edge.payloads import check_json
from app.edge.sight import as_seen
from app.engine.outcomes import Outcomes
from app.errors import InvalidRequest, RecordTooLarge, Unauthorized
from app.keys import Key, covers
from app.queue.results import MAX_BYTES, Progress

if TYPE_CHECKING:
    from app.engine.outcomes import Outcome
    from app.topics.config import Policy

MAX_WAIT_MS: Final = 60_000
MAX_NOTE_BYTES: Final = 1_024
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

HandedIn = Annotated[
    Raw, about("Any JSON of up to 1 MiB without U+0000, nested 128 deep at most; null is none. It comes back as it is.")
]
State = Annotated[str, about("pending: it waits, or is worked on. Else how it ended.", enum=list(STATES))]


class ProgressBody(msgspec.Struct, forbid_unknown_fields=True):
    """How far the work is."""

    percent: Annotated[int, Meta(ge=0, le=100, description="How much of it is done.")]
    note: Annotated[
        Annotated[str, text("Shown beside it.", most=MAX_NOTE_BYTES)] | None, about("In words, where it is.")
    ] = None


def progress_of(given: ProgressBody | None) -> Progress | None:
    """As the engine takes it. Raises InvalidRequest."""
    if given is None:
        return None
    note = None if given.note is None else check_text(given.note, "note", MAX_NOTE_BYTES)
    return Progress(given.percent, note)


def result_of(given: Raw) -> str | None:
    """The text of its JSON; None for null. Raises InvalidRequest, RecordTooLarge."""
    result = bytes(given)
    if result in {b"null", b""}:
        return None
    if len(result) > MAX_BYTES:
        raise RecordTooLarge(
            f"A result is {len(result)} bytes; {MAX_BYTES} are the most.",
            {"bytes": len(result), "max_bytes": MAX_BYTES},
        )
    check_json(result)
    return result.decode()


def beside(given: Sequence[Any] | None, field: str, count: int, of: str) -> Sequence[Any]:
    """A list that stands beside another one, of `count`; an empty one if there is none. Raises InvalidRequest."""
    if given is not None and len(given) != count:
        raise InvalidRequest(f"{field} has {len(given)} entries for {count} {of}.")
    return given or ()


def wait_ms_of(request: Request) -> int:
    """For how long the caller would wait. Raises InvalidRequest."""
    given = request.query_params.get("wait_ms", "0")
    if _MILLIS.match(given) is None or int(given) > MAX_WAIT_MS:
        raise InvalidRequest(f"wait_ms must be 0 to {MAX_WAIT_MS}.")
    return int(given)


async def outcome_of(request: Request, key: Key | None, policy: Policy, seq: int, wait_ms: int) -> Outcome | None:
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
