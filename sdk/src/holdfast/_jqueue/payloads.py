"""Reads jobs' payloads as bytes, from the job or from object storage."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

from holdfast._client import AsyncTopic
from holdfast._objects import reference_of
from holdfast._removals import Removals
from holdfast.errors import ObjectError

MAX_READS: Final = 16  # concurrent reads of objects


class Payloads:
    """The payloads of a topic. Large ones are in the client's Objects, if it has any."""

    def __init__(self, topic: AsyncTopic) -> None:
        self._objects = topic._sender.objects
        self._removals = Removals(self._objects, topic)
        self._turn = asyncio.Semaphore(MAX_READS)
        self.has_store: Final = self._objects is not None

    def key_of(self, data: Any) -> str | None:
        """The key of the object that a job's data refers to, if any."""
        reference = reference_of(data) if self.has_store else None
        return None if reference is None else reference.key

    async def read(self, data: Sequence[Any]) -> list[bytes | ObjectError]:
        """Read payloads as bytes. An unreadable one is an ObjectError."""
        return list(await asyncio.gather(*map(self._read, data)))

    def remove(self, keys: Sequence[str]) -> None:
        """Delete the objects of completed jobs in the background."""
        self._removals.add(keys)

    async def finish(self) -> None:
        """Wait until the objects are deleted."""
        await self._removals.finish()

    async def _read(self, data: Any) -> bytes | ObjectError:
        if self._objects is None or reference_of(data) is None:
            return _bytes(data)
        async with self._turn:
            try:
                return _bytes(await self._objects.get_async(data))
            except ObjectError as error:
                return error


def _bytes(data: Any) -> bytes:
    """Convert a payload to bytes. Other producers may have enqueued text or JSON."""
    if isinstance(data, bytes):
        return data
    return (data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)).encode()
