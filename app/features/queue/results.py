"""Results and progress that workers report, for every dialect. docs/jobs.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Raw

from app.errors import InvalidRequest, RecordTooLarge
from app.http.bounds import about, text
from app.http.fields import check_text
from app.http.payloads import check_json
from app.kernel.settle.results import MAX_BYTES, Progress

MAX_NOTE_BYTES: Final = 1_024

HandedIn = Annotated[
    Raw, about("Any JSON of up to 1 MiB without U+0000, at most 128 levels deep. null: none. It is returned unchanged.")
]


class ProgressBody(msgspec.Struct, forbid_unknown_fields=True):
    """The progress of a job."""

    percent: Annotated[int, Meta(ge=0, le=100, description="How much is done.")]
    note: Annotated[Annotated[str, text("A note.", most=MAX_NOTE_BYTES)] | None, about("The progress in words.")] = None


def progress_of(given: ProgressBody | None) -> Progress | None:
    """Convert progress for the engine. Raises InvalidRequest."""
    if given is None:
        return None
    note = None if given.note is None else check_text(given.note, "note", MAX_NOTE_BYTES)
    return Progress(given.percent, note)


def result_of(given: Raw) -> str | None:
    """Return the text of a result, None for null. Raises InvalidRequest, RecordTooLarge."""
    result = bytes(given)
    if result in {b"null", b""}:
        return None
    if len(result) > MAX_BYTES:
        raise RecordTooLarge(
            f"The result has {len(result)} bytes. The limit is {MAX_BYTES}.",
            {"bytes": len(result), "max_bytes": MAX_BYTES},
        )
    check_json(result)
    return result.decode()


def parallel_list(given: Sequence[Any] | None, field: str, count: int, of: str) -> Sequence[Any]:
    """Check that an optional list has `count` entries, one for each of another list. Returns it, or an empty one.

    Raises InvalidRequest.
    """
    if given is not None and len(given) != count:
        raise InvalidRequest(f"{field} has {len(given)} entries for {count} {of}.")
    return given or ()
