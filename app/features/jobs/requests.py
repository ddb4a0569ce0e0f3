"""What somebody asks of jobs by words, for whichever edge they come by. docs/jobs.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, assert_never

import msgspec
from starlette.requests import Request

from app.errors import InvalidRequest, KeyConflict, TopicNotFound
from app.features.jobs.changes import LIVE, Changes, Counted
from app.features.jobs.operations import Wanted
from app.features.jobs.redrive_rows import First, Outcome
from app.features.jobs.redrives import Redrives
from app.features.jobs.releases import Releases
from app.http.context import Context, context_of
from app.http.parameters import whole
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.jobs import MAX_PATH, MAX_VALUE, Datum, Match
from app.kernel.model import MAX_GROUP, MAX_JOB_KEY, MAX_TAG_BYTES, Held, Seq
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import BIGINT_MAX, MAX_TENANT, TEN_YEARS_MS

STATES: Final = ("ready", "scheduled", "blocked", "leased", "failed", "expired", "cancelled")
MAX_NODE: Final = 128
MAX_ERROR_PART: Final = 1_024
MAX_DATA: Final = 4  # of a filter
MAX_KEYS: Final = 16  # of a path
_LONGEST: Final = {
    "tenant": MAX_TENANT,
    "tag": MAX_TAG_BYTES,
    "key": MAX_JOB_KEY,
    "group": MAX_GROUP,
    "node": MAX_NODE,
    "error": MAX_ERROR_PART,
}
_DATUM: Final = re.compile(r"(?P<path>(?:\\.|[^\\=])+)=(?P<value>.*)\Z", re.DOTALL)
_PATH_KEY: Final = re.compile(r"((?:\\.|[^\\.])+)(?:\.(?!\Z)|\Z)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE: Final = re.compile(r'[\\.=:"\s]')


def match_of(given: Mapping[str, str], data: Sequence[str] = ()) -> Match:
    """Which jobs are meant, by state, priority, tenant, tag, key, group, node, error and older_than_ms, as far as they
    are given, and by what is in their payloads. Raises InvalidRequest."""
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
    priority = whole(given, "priority", 0) if "priority" in given else None
    if priority is not None and not -32_768 <= priority <= 32_767:
        raise InvalidRequest("priority must be -32768 to 32767.")
    return Match(
        states=None if state is None else [state],
        tenant=given.get("tenant"),
        tag=given.get("tag"),
        key=given.get("key"),
        group=given.get("group"),
        older_than_ms=older,
        priority=priority,
        node=given.get("node"),
        error=given.get("error"),
        data=data_of(data),
    )


def data_of(given: Sequence[str]) -> tuple[Datum, ...]:
    """What is to be in payloads: each `path=value`. A path is keys, and places in lists, with dots between; a backslash
    takes the next character as it is. Raises InvalidRequest."""
    if len(given) > MAX_DATA:
        raise InvalidRequest(f"data is there more than {MAX_DATA} times.")
    return tuple(map(_datum, given))


def _datum(given: str) -> Datum:
    said = _DATUM.match(given)
    path, value = (said["path"], said["value"]) if said else ("", "")
    keys: list[str] = []
    at = 0
    while at < len(path) and (key := _PATH_KEY.match(path, at)):
        keys.append(_ESCAPED.sub(r"\1", key[1]))
        at = key.end()
    if not keys or at < len(path):
        raise InvalidRequest(f"data is path=value, with keys of JSON and dots between as the path: {given[:80]!r}.")
    if len(path) > MAX_PATH or len(keys) > MAX_KEYS or len(value) > MAX_VALUE:
        raise InvalidRequest(
            f"data is too long: a path has {MAX_KEYS} keys and {MAX_PATH} characters, a value {MAX_VALUE}, at most."
        )
    if "\0" in given:
        raise InvalidRequest("data can't have a NUL.")
    return Datum(tuple(keys), value)


def path_of(keys: Sequence[str]) -> str:
    """The path that leads there, as filters have it."""
    return ".".join(_TO_ESCAPE.sub(lambda one: f"\\{one[0]}", key) for key in keys)


async def cancel_matching(request: Request, policy: Policy, match: Match) -> Counted:
    """Cancel the jobs that match at this moment, in batches, with an entry in the audit trail ahead of it: what breaks
    off has done a part. Who asks was let do that; `match` is `must_be_live`."""
    context = context_of(request)
    detail = msgspec.to_builtins(match)
    by = context.access.actor(request)
    await trail.record(context.pools.rest, by, Action.JOBS_CANCELLED, policy.topic.name, {"filter": detail})
    return await context.core(Changes).cancel_matching(policy, match)


def cancels(policy: Policy, match: Match, rate: int = 0) -> Wanted:
    """A cancel of what matches, as an operation: `rate` jobs a second, 0 for as fast as it goes. Raises
    InvalidRequest."""
    return Wanted((policy.topic.name, policy.topic.id), rate=rate, cancels=must_be_live(match))


def must_be_live(match: Match) -> Match:
    """The filter of a cancel: it is not for all jobs, nor for those that are over. Raises InvalidRequest."""
    if match.is_all:
        raise InvalidRequest("filter needs at least one field; older_than_ms: 0 is all jobs.")
    if not set(match.states or ()) <= set(LIVE):
        raise InvalidRequest(f"state must be one of {', '.join(LIVE)}: what is over can't be cancelled.")
    return match


class Leases(msgspec.Struct, frozen=True):
    """Leases to take back: of jobs by seq, else of a tenant's group, else all that `node` holds. Beside seqs or a
    group, `node` means: only if this worker holds the lease; beside seqs, `visible_at` means: only if the lease still
    ends then, in ms since 1970."""

    seqs: Sequence[int] | None = None
    visible_at: Sequence[int] = ()
    group: str | None = None
    tenant: str = ""
    node: str | None = None


class TakenBack(NamedTuple):
    """Leases that were taken back; how many of their jobs ended; and the seqs that were left."""

    released: int
    ended: int
    skipped: list[int]


async def release(request: Request, policy: Policy, leases: Leases, *, refund: bool = False) -> TakenBack:
    """Take leases back. An entry goes into the audit trail ahead of it. Checking the caller's permission comes before
    this."""
    context, releases = context_of(request), context_of(request).engine.core(Releases)
    detail = {name: value for name, value in msgspec.structs.asdict(leases).items() if value} | {"refund": refund}
    by = context.access.actor(request)
    await trail.record(context.pools.rest, by, Action.LEASES_RELEASED, policy.topic.name, detail)
    if leases.seqs is not None:
        held = [Held(Seq(min(seq, BIGINT_MAX)), None, leases.node) for seq in leases.seqs]
        done, ended = await releases.release(policy, held, refund=refund, until_ms=leases.visible_at)
        return TakenBack(len(done), ended, [seq for i, seq in enumerate(leases.seqs) if i not in done])
    if leases.group is not None:
        counts = await releases.release_group(policy, leases.tenant, leases.group, leases.node, refund=refund)
        return TakenBack(*counts, [])
    assert leases.node is not None, "the caller names jobs, a group or a worker"
    return TakenBack(*await releases.release_node(policy, leases.node, refund=refund), [])


async def requeue_one(context: Context, policy: Policy, seq: Seq, starts: Sequence[str]) -> First | None:
    """Where a job is that was out, and has another life now; None if it is not out. `starts`: how the names of topics
    begin that it may go to, none for all. Raises KeyConflict, TopicNotFound."""
    done = await context.core(Redrives).requeue((policy.topic.name, policy.topic.id), [seq], starts)
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
