"""Payloads as pages show them: JSON in lines that fold, text, or bytes in hex. What is shown is what is there.

JSON is not decoded and written anew, which would round numbers and lose fields that are there twice: its own tokens are
put into lines. Anything else about a payload may be wrong, since SQL writes them too: what is no JSON is shown as text,
and what is no text in hex.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from app.kernel.forms import PayloadForm, form_of, is_utf8

MOST_LINES: Final = 2_000
MOST_CHARACTERS: Final = 64 * 1024  # of all lines, and of a text
MOST_BYTES: Final = 4 * 1024  # in hex
DEEPEST: Final = 128  # levels
MOST_EDITED: Final = 16 * 1024  # bytes: a form has 64 KiB, and three for many of them
OPEN_LINES: Final = 200  # a payload of more begins with what is inside of its fields folded
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
# What a browser would show nothing for, or take for something else: their pictures.
_PICTURES: Final = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}


class Kind(Enum):
    """What a line of JSON is."""

    VALUE = "value"
    OPENS = "opens"
    CLOSES = "closes"


_KINDS: Final = {"{": Kind.OPENS, "[": Kind.OPENS, "}": Kind.CLOSES, "]": Kind.CLOSES}
_STEPS: Final = {Kind.OPENS: 1, Kind.CLOSES: -1, Kind.VALUE: 0}


class Line(msgspec.Struct, frozen=True):
    """A field or element: a value, or where an object or array begins or ends. `name` is the field's, as it stands
    there; `comma`: another one follows. `folded`: it opens, and its inside is not shown at first."""

    kind: Kind
    text: str
    name: str = ""
    comma: bool = False
    folded: bool = False


class Shown(msgspec.Struct, frozen=True):
    """A payload: `lines` of JSON, else `text`, perhaps its bytes in hex. `cut`: there is more of it than is shown.
    `wrong`: it is not what its content type says."""

    size: int
    title: str
    lines: list[Line] = msgspec.field(default_factory=list)
    text: str = ""
    is_hex: bool = False
    cut: bool = False
    wrong: bool = False


def shown(payload: bytes, content_type: str | None) -> Shown:
    """A payload of this type; None is JSON."""
    form, title, size = form_of(content_type), content_type or "application/json", len(payload)
    if form is PayloadForm.BYTES or not is_utf8(payload):
        return Shown(
            size, title, text=_hex(payload), is_hex=True, cut=size > MOST_BYTES, wrong=form is not PayloadForm.BYTES
        )
    text = payload.decode()
    if form is PayloadForm.JSON and is_json(payload):
        lines, cut = _within(text)
        return Shown(size, title, lines, cut=cut)
    visible = text[:MOST_CHARACTERS].translate(_PICTURES)
    return Shown(size, title, text=visible, cut=len(text) > MOST_CHARACTERS, wrong=form is PayloadForm.JSON)


def editable(payload: bytes, content_type: str | None) -> str | None:
    """What a form's field can hold of it and give back as it was; None where that is not so."""
    if len(payload) > MOST_EDITED or form_of(content_type) is PayloadForm.BYTES or not is_utf8(payload):
        return None
    text = payload.decode()
    return text if text == text.translate(_PICTURES) else None


def is_json(payload: bytes) -> bool:
    """Whether it is JSON."""
    try:
        _JSON.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def lines_of(text: str) -> Iterator[Line]:
    """JSON in lines: all of its tokens, in their order, as they stand there."""
    line, name = None, ""
    for match in _TOKEN.finditer(text):
        mark = match.group()
        if line is not None and mark == ",":
            line = replace(line, comma=True)
        elif line is not None and mark == ":":
            name, line = line.text, None
        elif line is not None and line.kind is Kind.OPENS and line.text + mark in {"{}", "[]"}:
            line = replace(line, kind=Kind.VALUE, text=line.text + mark)
        else:
            if line is not None:
                yield line
            line, name = Line(_KINDS.get(mark, Kind.VALUE), mark, name), ""
    if line is not None:
        yield line


def _within(text: str) -> tuple[list[Line], bool]:
    """Its lines as far as they are shown, with an end to what is open there; and whether there are more."""
    found: list[Line] = []
    left, depth, cut = MOST_CHARACTERS, 0, False
    for line in lines_of(text):
        if len(found) == MOST_LINES or left <= 0 or depth > DEEPEST:
            cut = True
            break
        cut = len(line.text) > left
        found.append(replace(line, text=f"{line.text[:left]}…") if cut else line)
        left -= len(line.text) + len(line.name)
        depth += _STEPS[line.kind]
    if len(found) > OPEN_LINES:
        found = list(_folded(found))
    return found + [Line(Kind.CLOSES, "…")] * depth, cut


def _folded(lines: list[Line]) -> Iterator[Line]:
    depth = 0
    for line in lines:
        depth += _STEPS[line.kind]
        yield replace(line, folded=True) if line.kind is Kind.OPENS and depth > 1 else line


def _hex(payload: bytes) -> str:
    """Sixteen bytes a line: where they are, what they are, and which characters."""
    rows = []
    for start in range(0, min(len(payload), MOST_BYTES), 16):
        part = payload[start : min(start + 16, MOST_BYTES)]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        rows.append(f"{start:08x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(rows)
