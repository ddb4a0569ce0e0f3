"""Forms that are shown again with each error beside its field, and times that people type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from app.errors import AlreadyExists, Forbidden, HoldfastError, InvalidRequest, Throttled
from app.http.fields import whole

# What a form is shown again for; other errors are pages of their own.
FAULTS: Final = (AlreadyExists, Forbidden, InvalidRequest, Throttled)
Number = TypeVar("Number", int, float)
_MS: Final = re.compile(r"[0-9]{1,15}\Z")


class TypedForm(msgspec.Struct, frozen=True):
    """What was typed, by field, and what is wrong with it; of the form as a whole, under ""."""

    typed: Mapping[str, str] = {}
    faults: Mapping[str, str] = {}


def form_with_fault(typed: Mapping[str, str], error: HoldfastError) -> TypedForm:
    """The form to be shown again. An error that names its `field` stands beside that."""
    field = (error.detail or {}).get("field", "")
    return TypedForm(typed, {str(field): error.message})


def number(
    kind: Callable[[str], Number], text: str, name: str, bounds: tuple[int, int], wrong: dict[str, str]
) -> Number:
    """The number in a field. An error is added to `wrong`, and the lower bound returned in its place."""
    low, high = bounds
    try:
        value = kind(text)
        if low <= value <= high:
            return value
    except ValueError:
        pass
    wrong[name] = f"A {'whole ' if kind is int else ''}number from {low:,} to {high:,}."
    return kind(str(low))


def describe_doubling(fields: Mapping[str, str], names: Sequence[str], count: int) -> str:
    """Why a change of many jobs must be confirmed again, "" where it need not be.

    A filter is what was confirmed, and on a live topic its number moves: only twice as many is another question. The
    fields `names` have the number that the form showed; they are absent where it showed none. Raises InvalidRequest.
    """
    was = sum(whole(fields, name, 0) for name in names)
    if not count or count < was * 2 or not any(name in fields for name in names):
        return ""
    return (
        f"The number of jobs has at least doubled while you were asked: from {was:,} to {count:,}. "
        "Nothing was changed. Confirm it again, or go back."
    )


def instant_of(text: str, field: str) -> datetime:
    """A time as a slider has it, in ms since 1970; as a datetime field has it, in UTC; or by RFC 3339.

    Raises InvalidRequest, which names the field.
    """
    try:
        if _MS.match(text):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest("This is no time, such as 2026-01-31T09:00:00Z.", {"field": field}) from None
