"""Helpers of the actions on messages: find the queue of a call, and read batches, whose entries fail one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from app.base.keys import Key, Scope
from app.base.log import TOPIC
from app.features.sqs.calls import Answer, SqsCall
from app.features.sqs.faults import SqsFault
from app.kernel.claim.walk import MAX_CLAIM
from app.kernel.topics.policy import Policy

MOST: Final = 10  # entries of a batch, and messages of a receive
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")


class BatchCall(msgspec.Struct, rename="pascal", kw_only=True):
    """A batch. Entries are checked one by one."""

    queue_url: str | None = None
    entries: list[dict[str, Any]] = []


async def open_queue(
    call: SqsCall, url: str | None, scope: Scope, *, consumes: bool = False
) -> tuple[Policy, Key | None]:
    """Check that the caller may do this to a queue. Returns its policy and the caller's key."""
    name = call.name(url)
    key = call.let_in(scope, name, consumes=consumes, confines=True)
    call.request.scope[TOPIC] = name
    return await call.queue(name), key


def read_entries(call: SqsCall, given: Sequence[dict[str, Any]], what: str) -> list[tuple[str, dict[str, Any]]]:
    """The entries of a batch by their ids. Raises SqsFault."""
    if not given:
        raise SqsFault("EmptyBatchRequest", f"There should be at least one {what} in the request.")
    most = MAX_CLAIM if call.context.settings.sqs_beyond else MOST
    if len(given) > most:
        raise SqsFault(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {most}. You have sent {len(given)}.",
        )
    names: dict[str, dict[str, Any]] = {}
    for entry in given:
        name = str(entry.get("Id", ""))
        if _ID.match(name) is None:
            raise SqsFault(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most "
                "80 letters long.",
            )
        if name in names:
            raise SqsFault("BatchEntryIdsNotDistinct", f"Id {name} repeated.")
        names[name] = entry
    return list(names.items())


def failure(name: str, fault: SqsFault) -> Answer:
    """A failed entry in an answer."""
    return {"Id": name, "SenderFault": fault.sender, "Code": fault.code, "Message": fault.message}


def batch_answer(done: list[Answer], failed: list[Answer]) -> Answer:
    """The answer to a batch."""
    answer: Answer = {}
    if done:
        answer["Successful"] = done
    if failed:
        answer["Failed"] = failed
    return answer
