"""Objects that no job refers to: what is left of enqueues that came to nothing, of workers that died between an ack and
the removal, of jobs that expired, were cancelled or deleted, and of replayable topics. docs/enqueue.md."""

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

AT_ONCE: Final = 200_000  # objects that are looked for at once: some 50 MB
LEAST_AGE: Final = timedelta(hours=1)  # an object is there before its job is, and that may be in an open transaction

Tell = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Collected:
    """What became of the objects: `young` ones were not looked at, `kept` ones are referred to, `garbage` and its
    `bytes` are the rest, and `removed` says whether they are gone."""

    objects: int = 0
    young: int = 0
    kept: int = 0
    garbage: int = 0
    bytes: int = 0
    removed: bool = False


def collect(client: Client, objects: Objects, *, older_than: timedelta, remove: bool, tell: Tell) -> Collected:
    """Find objects that are older than this, and that nothing refers to; and remove them where that is asked for.
    `tell` hears what is being read, and how much of it so far.

    Raises Forbidden for a key that does not see all topics, ValueError for an age of less than an hour, ObjectError
    where the store fails. Whatever fails, nothing is removed that was not found to be garbage before."""
    if older_than < LEAST_AGE:
        raise ValueError("objects of less than an hour may be of jobs that are yet to be committed")
    client.admin.reapers()  # for keys of all topics alone: others would not see what refers to an object
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
    """Those that clients have put: what else lies there is not ours."""
    import obstore  # noqa: PLC0415

    with store_errors("can't list objects"):
        for page in obstore.list(objects.store, f"{objects.prefix}/", chunk_size=1_000):
            yield from (one for one in page if objects.owns(one["path"]))


def _leave_garbage(client: Client, old: dict[str, int], tell: Tell) -> None:
    """Take out what is referred to. A job that moves to a topic that was read before, as a dead letter does, while its
    own is yet to be read, is missed by that pass: another one finds it, so what is left has been missed by two."""
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
    """Of all jobs of a queue, whatever their state, and of what a replay would make jobs of; of all records of a log,
    which may have taken dead letters."""
    try:
        for job in topic.jobs(order="oldest", limit=1_000):
            if job.hidden is not None:
                raise errors.ObjectError(f"what refers to an object is not to be seen: {job.hidden}")
            yield job.data
        yield from _acked(client, topic)
    except errors.NotAQueue:
        yield from _records(topic)
    except errors.TopicNotFound:
        return  # deleted meanwhile, with all that was in it


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
            raise errors.ObjectError(f"what refers to an object is not to be seen: {item['hidden']}")
        try:
            yield json.loads(base64.b64decode(item["payload"]))
        except ValueError:
            continue  # no JSON, so no reference


def _records(topic: SyncTopic) -> Iterator[Any]:
    after, caught_up = 0, False
    while not caught_up:
        part = topic.diff(after, limit=1_000, include_meta=False)
        for record in part.records:
            yield record.data
        after, caught_up = part.next_from_seq, part.caught_up
