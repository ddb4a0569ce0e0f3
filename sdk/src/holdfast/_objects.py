"""Payloads in object storage: a job has a reference in place of what is too large for it. docs/enqueue.md.

The package obstore is what stores are made with and what reads and writes them; only who has one needs it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast._body import content_of, is_json, is_text
from holdfast.errors import ObjectError
from holdfast.models.records import Record

if TYPE_CHECKING:
    from obstore.store import ObjectStore

OVER_BYTES: Final = 128 * 1024
MOST_BYTES: Final = 100 * 1024 * 1024
RECORD_BYTES: Final = 1024 * 1024  # the service takes no more
PREFIX: Final = "holdfast"
MARK: Final = "$object"
MAX_DELETES: Final = 1_000  # objects a call

_SECRET: Final = re.compile(r"(?<=://)\S*@|\?\S*")  # of a URL: user and password, and what is asked for
_LONG: Final = 1024 * 1024  # what takes so long to hash and read that the event loop should not wait for it


@dataclass(frozen=True, slots=True)
class Reference:
    """What a job has in place of its payload: where that is, how many bytes it has, their SHA-256, what they are."""

    key: str
    size: int
    sha256: str
    content_type: str

    def data(self) -> dict[str, Any]:
        """As it stands in a job."""
        return {MARK: asdict(self)}


def reference_of(data: Any) -> Reference | None:
    """The reference that the data of a job is; None for anything else."""
    match data:
        case {"$object": {"key": str(key), "size": int(size), "sha256": str(sha256), "content_type": str(kind)}}:
            return Reference(key, size, sha256, kind) if len(data) == 1 else None
    return None


class Objects:
    """Where payloads are that have more than `over` bytes (131,072) as they would be sent.

    `store` is one of obstore's: S3Store, GCSStore, AzureStore, LocalStore, MemoryStore. Objects are put below `prefix`,
    which is to be one service's alone. `most`: bytes of an object (100 MiB); one that has more is neither put nor read.

    Given to a client or a Queue, what is enqueued goes there by itself, and a worker calls its handlers with what was
    put there and removes it after the ack. What a client claims has references: `get` reads them."""

    def __init__(
        self, store: ObjectStore, *, over: int = OVER_BYTES, most: int = MOST_BYTES, prefix: str = PREFIX
    ) -> None:
        if not 0 <= over <= RECORD_BYTES or most < over:
            raise ValueError(f"over is 0 to {RECORD_BYTES:,} bytes, and most not less than that")
        if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", prefix, re.ASCII):
            raise ValueError(f"a prefix is made of names and slashes, as in holdfast/mails, and not {prefix!r}")
        self.store = store
        self.over = over
        self.most = most
        self.prefix = prefix
        self._key = re.compile(re.escape(prefix) + r"/[^/]+/[0-9a-f]{32}")

    def put(self, topic: str, data: Any, content_type: str | None = None) -> dict[str, Any]:
        """Put a payload there, whatever its size; what to enqueue in its place. Raises ValueError for one that is too
        large, ObjectError if the store can't take it."""
        upload = self._upload(topic, data, content_type)
        upload.put()
        return upload.reference.data()

    async def put_async(self, topic: str, data: Any, content_type: str | None = None) -> dict[str, Any]:
        """As `put`."""
        upload = self._upload(topic, data, content_type)
        await upload.put_async()
        return upload.reference.data()

    def get(self, data: Any) -> Any:
        """The payload that the data of a claimed job stands for; what is no reference as it is. Raises ObjectError
        where the object is gone, is not what was put there, or can't be read."""
        import obstore  # noqa: PLC0415

        reference = reference_of(data)
        if reference is None:
            return data
        self._check(reference)
        with store_errors(f"can't read {reference.key}"):
            found = obstore.get(self.store, reference.key)
            _same_size(reference, found.meta["size"])
            content = found.bytes().to_bytes()
        return _opened(reference, content)

    async def get_async(self, data: Any) -> Any:
        """As `get`."""
        import obstore  # noqa: PLC0415

        reference = reference_of(data)
        if reference is None:
            return data
        self._check(reference)
        with store_errors(f"can't read {reference.key}"):
            found = await obstore.get_async(self.store, reference.key)
            _same_size(reference, found.meta["size"])
            content = (await found.bytes_async()).to_bytes()
        if len(content) < _LONG:
            return _opened(reference, content)
        return await asyncio.to_thread(_opened, reference, content)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, up to 1,000; those that are gone are no error."""
        import obstore  # noqa: PLC0415

        with store_errors("can't remove objects"):
            try:
                obstore.delete(self.store, keys)
            except FileNotFoundError:  # of a folder, where the first that is gone ends it
                for key in keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(self.store, key)

    async def delete_async(self, keys: Sequence[str]) -> None:
        """As `delete`."""
        await asyncio.to_thread(self.delete, keys)

    def packed(self, topic: str, record: Any, uploads: list[Upload]) -> Any:
        """A record whose data, where that has too many bytes, is a reference; the upload is added to `uploads`."""
        whole = record if isinstance(record, Record) else Record(data=record)
        if reference_of(whole.data) is not None:
            return whole
        content, kind = content_of(whole.data, whole.content_type)
        if len(content) <= self.over:
            return whole
        upload = self._made(topic, content, kind)
        uploads.append(upload)
        dedupe_id = whole.dedupe_id
        if dedupe_id is None and topic.endswith(".fifo"):
            dedupe_id = upload.reference.sha256  # as the service would, of the payload: each reference is another one
        return replace(whole, data=upload.reference.data(), content_type=None, dedupe_id=dedupe_id)

    def owns(self, key: str) -> bool:
        """Whether this is a key as `put` makes them: nothing else of the store is read or removed."""
        return self._key.fullmatch(key) is not None

    def _upload(self, topic: str, data: Any, content_type: str | None) -> Upload:
        return self._made(topic, *content_of(data, content_type))

    def _made(self, topic: str, content: bytes, kind: str) -> Upload:
        if len(content) > self.most:
            raise ValueError(f"a payload of {len(content):,} bytes; {self.most:,} are the most")
        key = f"{self.prefix}/{topic}/{uuid.uuid4().hex}"
        return Upload(self.store, Reference(key, len(content), hashlib.sha256(content).hexdigest(), kind), content)

    def _check(self, reference: Reference) -> None:
        """Whoever may enqueue says what a worker reads: so it is of ours, and not too large."""
        if not self.owns(reference.key):
            raise ObjectError(f"{reference.key!r:.200} is no object below {self.prefix}/")
        if not 0 <= reference.size <= self.most:
            raise ObjectError(f"{reference.key} has {reference.size:,} bytes; {self.most:,} are the most")


@dataclass(frozen=True, slots=True)
class Upload:
    """An object to be put before the job that refers to it: one that no job refers to is garbage, one that is missing
    is a job that nobody can do."""

    store: ObjectStore
    reference: Reference
    content: bytes

    def put(self) -> None:
        import obstore  # noqa: PLC0415

        with store_errors(f"can't put {self.reference.key}"):
            obstore.put(self.store, self.reference.key, self.content)

    async def put_async(self) -> None:
        import obstore  # noqa: PLC0415

        with store_errors(f"can't put {self.reference.key}"):
            await obstore.put_async(self.store, self.reference.key, self.content)


@contextmanager
def store_errors(failure: str) -> Iterator[None]:
    """Raise what the store raises as an ObjectError. `failure` is what could not be done."""
    from obstore.exceptions import BaseError  # noqa: PLC0415

    try:
        yield
    except FileNotFoundError as error:
        missing = "there is no such object, bucket or folder"
        raise ObjectError(f"the store {failure}: {missing}. {_first_line(error)}") from error
    except (BaseError, OSError) as error:
        raise ObjectError(f"the store {failure}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return _SECRET.sub("", str(error).partition("\n")[0])  # the rest is obstore's own state


def _same_size(reference: Reference, size: int) -> None:
    if size != reference.size:
        raise ObjectError(f"{reference.key} has {size:,} bytes, and was put with {reference.size:,}")


def _opened(reference: Reference, content: bytes) -> Any:
    if hashlib.sha256(content).hexdigest() != reference.sha256:
        raise ObjectError(f"{reference.key} is not what was put there: its SHA-256 is another one")
    try:
        if is_json(reference.content_type):
            return json.loads(content)
        return content.decode() if is_text(reference.content_type) else content
    except ValueError as error:
        raise ObjectError(f"{reference.key} is no {reference.content_type}: {error}") from error
