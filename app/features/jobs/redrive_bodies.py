"""Operations on many jobs: begun, or only counted for."""

from __future__ import annotations

import msgspec

from app.features.jobs.operations import Wanted
from app.features.jobs.redrives import Redrives
from app.http.route import Call


class OperationCount(msgspec.Struct):
    """How many jobs match; unless `exact`, at least so many. `id`: the operation's, by which it can be asked for; null
    for a dry run."""

    id: str | None
    matched: int
    exact: bool


class BegunAnswer(OperationCount):
    """202: it goes on by itself."""


async def begin_or_count(call: Call, wanted: Wanted, *, dry_run: bool) -> tuple[int, OperationCount]:
    """Begin an operation, or count the jobs that it would take: the answer, and its status."""
    redrives = call.context.core(Redrives)
    if dry_run:
        matched = await redrives.count(wanted)
        return 200, OperationCount(None, matched.count, matched.exact)
    which, matched = await redrives.begin(wanted, call.context.access.actor(call.request))
    return 202, OperationCount(str(which), matched.count, matched.exact)
