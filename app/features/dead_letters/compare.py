"""Two payloads side by side: their lines, and which of them differ."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Sequence
from typing import Final

import msgspec

from app.kernel.forms import Form, form_of, is_utf8

MOST_BYTES: Final = 64 * 1024  # of a payload that are looked at; JSON is indented if all of it is
MOST_LINES: Final = 500
MOST_CHARACTERS: Final = 500  # of a line
_HEX_BYTES: Final = 16  # a line


class Text(msgspec.Struct, frozen=True):
    """A payload as lines; `cut`: there is more."""

    lines: list[str]
    cut: bool


class Pair(msgspec.Struct, frozen=True):
    """A line of either, or None where one has none. `differs`: not the same in both."""

    left: str | None
    right: str | None
    differs: bool


def text_of(payload: bytes, content_type: str | None) -> Text:
    """Indented JSON, with its numbers as they were written; text as it is; else hex."""
    form, head = form_of(content_type), payload[:MOST_BYTES]
    cut = len(payload) > MOST_BYTES
    if form is Form.JSON and not cut:
        try:
            head = msgspec.json.format(payload, indent=2)
        except (msgspec.DecodeError, RecursionError):
            form = Form.TEXT
    if form is Form.BYTES or not is_utf8(payload):
        lines = [head[at : at + _HEX_BYTES].hex(" ") for at in range(0, len(head), _HEX_BYTES)]
    else:
        lines = head.decode(errors="replace").splitlines()
    shown = [one if len(one) <= MOST_CHARACTERS else one[:MOST_CHARACTERS] + "…" for one in lines[:MOST_LINES]]
    return Text(shown, cut or shown != lines)


def pairs(left: Sequence[str], right: Sequence[str]) -> list[Pair]:
    """The lines of both, those that are the same beside each other. Lines that come often say little, and are matched
    only around others, where there are hundreds: what it costs grows with the lines and not with their square."""
    found = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, left, right).get_opcodes():
        both = itertools.zip_longest(left[a:b], right[c:d])
        found += [Pair(one, other, kind != "equal") for one, other in both]
    return found
