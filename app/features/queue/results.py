"""What workers hand in and say of their jobs, for every dialect. docs/jobs.md."""

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
    Raw, about("Any JSON of up to 1 MiB without U+0000, nested 128 deep at most; null is none. It comes back as it is.")
]


class ProgressBody(msgspec.Struct, forbid_unknown_fields=True):
    """How far the work is."""

    percent: Annotated[int, Meta(ge=0, le=100, description="How much of it is done.")]
    note: Annotated[
        Annotated[str, text("Shown beside it.", most=MAX_NOTE_BYTES)] | None, about("In words, where it is.")
    ] = None


def progress_of(given: ProgressBody | None) -> Progress | None:
    """As the engine takes it. Raises InvalidRequest."""
    if given is None:
        return None
    note = None if given.note is None else check_text(given.note, "note", MAX_NOTE_BYTES)
    return Progress(given.percent, note)


def result_of(given: Raw) -> str | None:
    """The text of its JSON; None for null. Raises InvalidRequest, RecordTooLarge."""
    result = bytes(given)
    if result in {b"null", b""}:
        return None
    if len(result) > MAX_BYTES:
        raise RecordTooLarge(
            f"A result is {len(result)} bytes; {MAX_BYTES} are the most.",
            {"bytes": len(result), "max_bytes": MAX_BYTES},
        )
    check_json(result)
    return result.decode()


def beside(given: Sequence[Any] | None, field: str, count: int, of: str) -> Sequence[Any]:
    """A list that stands beside another one, of `count`; an empty one if there is none. Raises InvalidRequest."""
    if given is not None and len(given) != count:
        raise InvalidRequest(f"{field} has {len(given)} entries for {count} {of}.")
    return given or ()
