"""What a queue has left, in the answers to workers' verbs; they can do without, and so be quicker."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from app.base.keys import Key
from app.http import tenancy
from app.http.context import Context
from app.http.fields import flag
from app.http.openapi import query
from app.kernel.topics.policy import Policy

COUNTS: Final = query(
    "return_counts",
    "false leaves out how many are ready and in flight, and saves the statement that counts them.",
    {"type": "boolean", "default": True},
)


def wanted(request: Request) -> bool:
    """Whether the answer is to have counts. Raises InvalidRequest."""
    given: bytes = request.scope["query_string"]
    # As workers ask, with each job: not taken apart.
    return not given or (given != b"return_counts=false" and flag(request, "return_counts", default=True))


async def ready(context: Context, key: Key | None, policy: Policy) -> bytes:
    """How many are ready, as it stands in an answer. Raises Unavailable."""
    return b',"ready":%d' % (await tenancy.counts(context, key, policy))[0]


async def both(context: Context, key: Key | None, policy: Policy) -> bytes:
    """How many are ready and in flight, as it stands in an answer. Raises Unavailable."""
    return b',"ready":%d,"in_flight":%d' % await tenancy.counts(context, key, policy)
