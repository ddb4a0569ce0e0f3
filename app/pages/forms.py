"""Helpers for HTML forms: errors beside their fields, numbers and times that people type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

import msgspec

from app.errors import AlreadyExists, Forbidden, HoldfastError, InvalidRequest, Throttled
from app.http.fields import whole

# A form is shown again with these errors. Other errors have a page of their own.
FAULTS: Final = (AlreadyExists, Forbidden, InvalidRequest, Throttled)
Number = TypeVar("Number", int, float)
_MS: Final = re.compile(r"[0-9]{1,15}\Z")


class TypedForm(msgspec.Struct, frozen=True):
    """A submitted form: the text and the error of each field. The key "" holds the error of the whole form."""

    typed: Mapping[str, str] = {}
    faults: Mapping[str, str] = {}


def form_with_fault(typed: Mapping[str, str], error: HoldfastError) -> TypedForm:
    """Build the form to show again after an error. The error is placed at the `field` of its detail, if it has one."""
    field = (error.detail or {}).get("field", "")
    return TypedForm(typed, {str(field): error.message})


def number(
    kind: Callable[[str], Number], text: str, name: str, bounds: tuple[int, int], wrong: dict[str, str]
) -> Number:
    """Parse the number in a field. If it is invalid, add a message to `wrong` and return the lower bound."""
    low, high = bounds
    try:
        value = kind(text)
        if low <= value <= high:
            return value
    except ValueError:
        pass
    wrong[name] = f"Must be a {'whole ' if kind is int else ''}number from {low:,} to {high:,}."
    return kind(str(low))


def describe_doubling(fields: Mapping[str, str], names: Sequence[str], count: int) -> str:
    """Return why a change of many jobs needs a second confirmation, or "" if it does not.

    The number of jobs that match a filter changes on a live topic. The change needs a second confirmation only if the
    number has at least doubled. The fields `names` hold the number that the form showed; they are absent if it showed
    none. Raises InvalidRequest.
    """
    was = sum(whole(fields, name, 0) for name in names)
    if not count or count < was * 2 or not any(name in fields for name in names):
        return ""
    return (
        f"The number of jobs has at least doubled since you opened this form: from {was:,} to {count:,}. "
        "Nothing was changed. Confirm again, or go back."
    )


def instant_of(text: str, field: str) -> datetime:
    """Parse a time: ms since 1970 (a slider), a datetime field in UTC, or RFC 3339. Raises InvalidRequest."""
    try:
        if _MS.match(text):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        time = datetime.fromisoformat(text)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidRequest("Must be a time, such as 2026-01-31T09:00:00Z.", {"field": field}) from None
