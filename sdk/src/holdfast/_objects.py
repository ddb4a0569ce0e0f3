"""Large payloads in object storage. The job has a reference instead of the payload. Needs obstore. docs/enqueue.md."""

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
RECORD_BYTES: Final = 1024 * 1024  # the service's limit
PREFIX: Final = "holdfast"
MARK: Final = "$object"
MAX_DELETES: Final = 1_000  # objects per call

_SECRET: Final = re.compile(r"(?<=://)\S*@|\?\S*")  # user, password and query of a URL
_LONG: Final = 1024 * 1024  # bytes that are hashed and decoded in a thread


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to an object: its key, size in bytes, SHA-256 and content type."""

    key: str
    size: int
    sha256: str
    content_type: str

    def data(self) -> dict[str, Any]:
        """The reference as a job's data."""
        return {MARK: asdict(self)}


def reference_of(data: Any) -> Reference | None:
    """The reference in a job's data; None if it is not a reference."""
    match data:
        case {"$object": {"key": str(key), "size": int(size), "sha256": str(sha256), "content_type": str(kind)}}:
            return Reference(key, size, sha256, kind) if len(data) == 1 else None
    return None


class Objects:
    """Object storage for large payloads.

    - store: one of obstore's: S3Store, GCSStore, AzureStore, LocalStore, MemoryStore.
    - over: payloads with more bytes than this (131,072) are stored as objects.
    - most: limit for an object in bytes (100 MiB). Larger ones are not written or read.
    - prefix: prefix of the objects' keys. Use it for one service only.

    A client or Queue with Objects stores large payloads when it enqueues. A worker passes the payload to the handler
    and deletes the object after the ack. Jobs that a client claims have references: read them with `get`."""

    def __init__(
        self, store: ObjectStore, *, over: int = OVER_BYTES, most: int = MOST_BYTES, prefix: str = PREFIX
    ) -> None:
        if not 0 <= over <= RECORD_BYTES or most < over:
            raise ValueError(f"over must be 0 to {RECORD_BYTES:,} bytes, and most must not be less than over")
        if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)*", prefix, re.ASCII):
            raise ValueError(f"prefix must be names with slashes between, such as holdfast/mails, not {prefix!r}")
        self.store = store
        self.over = over
        self.most = most
        self.prefix = prefix
        self._key = re.compile(re.escape(prefix) + r"/[^/]+/[0-9a-f]{32}")

    def put(self, topic: str, data: Any, content_type: str | None = None) -> dict[str, Any]:
        """Store a payload of any size. Returns the data to enqueue instead. Raises ValueError if it is too large,
        ObjectError if the store fails."""
        upload = self._upload(topic, data, content_type)
        upload.put()
        return upload.reference.data()

    async def put_async(self, topic: str, data: Any, content_type: str | None = None) -> dict[str, Any]:
        """Async version of `put`."""
        upload = self._upload(topic, data, content_type)
        await upload.put_async()
        return upload.reference.data()

    def get(self, data: Any) -> Any:
        """Read the payload that a claimed job's data refers to. Data that is not a reference is returned unchanged.
        Raises ObjectError if the object is missing or was changed, or can't be read."""
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
        """Async version of `get`."""
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
        """Delete up to 1,000 objects. Missing ones are no error."""
        import obstore  # noqa: PLC0415

        with store_errors("can't remove objects"):
            try:
                obstore.delete(self.store, keys)
            except FileNotFoundError:  # LocalStore stops at the first missing object
                for key in keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(self.store, key)

    async def delete_async(self, keys: Sequence[str]) -> None:
        """Async version of `delete`."""
        await asyncio.to_thread(self.delete, keys)

    def packed(self, topic: str, record: Any, uploads: list[Upload]) -> Any:
        """Replace a record's data by a reference if it is too large, and add the upload to `uploads`."""
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
            dedupe_id = upload.reference.sha256  # the service's default would hash the reference, which is always new
        return replace(whole, data=upload.reference.data(), content_type=None, dedupe_id=dedupe_id)

    def owns(self, key: str) -> bool:
        """Whether `put` could have made this key. Other objects of the store are never read or deleted."""
        return self._key.fullmatch(key) is not None

    def _upload(self, topic: str, data: Any, content_type: str | None) -> Upload:
        return self._made(topic, *content_of(data, content_type))

    def _made(self, topic: str, content: bytes, kind: str) -> Upload:
        if len(content) > self.most:
            raise ValueError(f"the payload has {len(content):,} bytes; the limit is {self.most:,}")
        key = f"{self.prefix}/{topic}/{uuid.uuid4().hex}"
        return Upload(self.store, Reference(key, len(content), hashlib.sha256(content).hexdigest(), kind), content)

    def _check(self, reference: Reference) -> None:
        """Check a reference before reading it: producers choose what workers read."""
        if not self.owns(reference.key):
            raise ObjectError(f"{reference.key!r:.200} is not an object under {self.prefix}/")
        if not 0 <= reference.size <= self.most:
            raise ObjectError(f"{reference.key} has {reference.size:,} bytes; the limit is {self.most:,}")


@dataclass(frozen=True, slots=True)
class Upload:
    """An object to write before its job. An object without a job is garbage, a job without its object can't be run."""

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
    """Raise the store's errors as ObjectError. `failure`: what failed, such as "can't read x"."""
    from obstore.exceptions import BaseError  # noqa: PLC0415

    try:
        yield
    except FileNotFoundError as error:
        missing = "the object, bucket or folder does not exist"
        raise ObjectError(f"the store {failure}: {missing}. {_first_line(error)}") from error
    except (BaseError, OSError) as error:
        raise ObjectError(f"the store {failure}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return _SECRET.sub("", str(error).partition("\n")[0])  # the rest is obstore's internal state


def _same_size(reference: Reference, size: int) -> None:
    if size != reference.size:
        raise ObjectError(f"{reference.key} was changed: it has {size:,} bytes instead of {reference.size:,}")


def _opened(reference: Reference, content: bytes) -> Any:
    if hashlib.sha256(content).hexdigest() != reference.sha256:
        raise ObjectError(f"{reference.key} was changed: its SHA-256 does not match")
    try:
        if is_json(reference.content_type):
            return json.loads(content)
        return content.decode() if is_text(reference.content_type) else content
    except ValueError as error:
        raise ObjectError(f"{reference.key} is not valid {reference.content_type}: {error}") from error
