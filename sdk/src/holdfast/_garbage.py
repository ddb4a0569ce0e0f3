"""Collects objects that no job refers to. They are left by failed enqueues, by workers that died between an ack and the
removal, by expired, cancelled and deleted jobs, and by replayable topics. docs/enqueue.md."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast import errors
from holdfast._client import Client, SyncTopic
from holdfast._objects import MAX_DELETES, Objects, reference_of, store_errors
from holdfast._wire import Request
from holdfast.models.page import Page

AT_ONCE: Final = 200_000  # objects checked at once: some 50 MB of memory
LEAST_AGE: Final = timedelta(
    hours=1
)  # the job is written after its object, perhaps in a transaction that is still open

Tell = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Collected:
    """Counts of objects: `young` ones were not checked, `kept` ones have a job, `garbage` are the rest, with their
    total `bytes`. `removed`: whether the garbage was deleted."""

    objects: int = 0
    young: int = 0
    kept: int = 0
    garbage: int = 0
    bytes: int = 0
    removed: bool = False


def collect(client: Client, objects: Objects, *, older_than: timedelta, remove: bool, tell: Tell) -> Collected:
    """Find objects older than `older_than` that no job refers to, and delete them if `remove` is true. `tell` is called
    with the progress.

    Raises Forbidden for a key without access to all topics, ValueError for an age of less than an hour, ObjectError if
    the store fails. Deletes only objects that were found to be garbage."""
    if older_than < LEAST_AGE:
        raise ValueError("objects younger than an hour may belong to jobs that are not committed yet")
    client.admin.reapers()  # fails for keys without access to all topics, which would not see all references
    found = Collected(removed=remove)
    before = datetime.now(UTC) - older_than
    listed = _objects_of(objects)
    while True:
        old: dict[str, int] = {}
        for one in listed:
            found = replace(found, objects=found.objects + 1)
            if one["last_modified"] < before:
                old[one["path"]] = one["size"]
            else:
                found = replace(found, young=found.young + 1)
            if found.objects % 1_000 == 0:
                tell("objects", found.objects)
            if len(old) == AT_ONCE:
                break
        if not old:
            return found
        looked_for = len(old)
        _leave_garbage(client, old, tell)
        found = replace(
            found,
            kept=found.kept + looked_for - len(old),
            garbage=found.garbage + len(old),
            bytes=found.bytes + sum(old.values()),
        )
        if remove:
            keys = list(old)
            for first in range(0, len(keys), MAX_DELETES):
                objects.delete(keys[first : first + MAX_DELETES])
                tell("removed", min(first + MAX_DELETES, len(keys)))


def _objects_of(objects: Objects) -> Iterator[Any]:
    """The objects that clients have written. Skips any others."""
    import obstore  # noqa: PLC0415

    with store_errors("can't list objects"):
        for page in obstore.list(objects.store, f"{objects.prefix}/", chunk_size=1_000):
            yield from (one for one in page if objects.owns(one["path"]))


def _leave_garbage(client: Client, old: dict[str, int], tell: Tell) -> None:
    """Remove objects with a job from `old`. Reads all topics twice: one pass may miss a job that moves to a topic that
    was already read, as dead letters do."""
    for _ in range(2):
        read = 0
        for topic in client.topics.list():
            for data in _payloads(client, client.topic(topic.topic)):
                read += 1
                if read % 1_000 == 0:
                    tell("jobs", read)
                if (reference := reference_of(data)) is not None:
                    old.pop(reference.key, None)
        tell("jobs", read)
        if not old:
            return


def _payloads(client: Client, topic: SyncTopic) -> Iterator[Any]:
    """Payloads of all jobs of a queue in any state, and of its replayable jobs; or of all records of a log, which may
    have dead letters."""
    try:
        for job in topic.jobs(order="oldest", limit=1_000):
            if job.hidden is not None:
                raise errors.ObjectError(f"can't see which objects jobs refer to: {job.hidden}")
            yield job.data
        yield from _acked(client, topic)
    except errors.NotAQueue:
        yield from _records(topic)
    except errors.TopicNotFound:
        return  # deleted meanwhile


def _acked(client: Client, topic: SyncTopic) -> Iterator[Any]:
    """docs/messages.md#message-log-and-replay"""
    first: Request[Page[Any]] = Request(
        "GET",
        f"/api/topics/{topic.name}/message-log",
        lambda reply: Page(tuple(reply.body["items"]), reply.body.get("next_cursor")),
        params={"limit": 200},
    )
    for item in client._sender.pages(first):
        if "payload" not in item:
            raise errors.ObjectError(f"can't see which objects jobs refer to: {item['hidden']}")
        try:
            yield json.loads(base64.b64decode(item["payload"]))
        except ValueError:
            continue  # not JSON, so not a reference


def _records(topic: SyncTopic) -> Iterator[Any]:
    after, caught_up = 0, False
    while not caught_up:
        part = topic.diff(after, limit=1_000, include_meta=False)
        for record in part.records:
            yield record.data
        after, caught_up = part.next_from_seq, part.caught_up
