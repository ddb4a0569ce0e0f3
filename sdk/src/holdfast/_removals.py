"""Deletes the objects of jobs after their ack. docs/enqueue.md."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final

from holdfast import errors
from holdfast._client import AsyncTopic
from holdfast._objects import MAX_DELETES, Objects

log: Final = logging.getLogger("holdfast")

KNOWN_SECONDS: Final = 60.0  # how long to cache whether a topic is replayable
LAST_SECONDS: Final = 5.0


class Removals:
    """Deletes the objects of a topic's completed jobs in batches. If that fails, or if the topic is replayable, the
    objects are left to `holdfast objects gc`."""

    def __init__(self, objects: Objects | None, topic: AsyncTopic) -> None:
        self._objects = objects
        self._topic = topic
        self._keys: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._replayable = False
        self._known_until = -1.0

    def add(self, keys: Iterable[str]) -> None:
        """Delete the objects of acked jobs, in the background."""
        self._keys.extend(keys)
        if self._keys and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def finish(self) -> None:
        """Wait until all objects are deleted, at most LAST_SECONDS."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LAST_SECONDS)

    async def _run(self) -> None:
        while self._keys:
            keys, self._keys = self._keys[:MAX_DELETES], self._keys[MAX_DELETES:]
            try:
                if self._objects is not None and not await self._is_replayable():
                    await self._objects.delete_async(keys)
            except Exception as error:  # stores raise many kinds
                log.warning("%d objects of %s were not deleted: %s", len(keys), self._topic.name, error)

    async def _is_replayable(self) -> bool:
        """Whether acked jobs may be replayed, with the same references."""
        if time.monotonic() >= self._known_until:
            try:
                self._replayable = bool((await self._topic.get(touch=False)).config.replayable)
            except errors.TopicNotFound:
                self._replayable = False
            self._known_until = time.monotonic() + KNOWN_SECONDS
        return self._replayable
