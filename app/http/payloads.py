"""Payloads: bytes and a content type, which each dialect shows in its own way. docs/semantics.md, section 18."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import msgspec

from app.errors import InvalidRequest
from app.kernel.forms import PayloadForm, form_of, is_utf8

JSON: Final = "application/json"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"

MAX_TYPE_BYTES: Final = 255
TYPE_PATTERN: Final = "^[!#$&^_.+A-Za-z0-9-]+/[!#$&^_.+A-Za-z0-9-]+( *;[ -~]*)?$"
_TYPE: Final = re.compile(TYPE_PATTERN[:-1] + r"\Z")

MAX_DEPTH: Final = 128
MAX_DIGITS: Final = 4_300  # Python reads no longer ones
DIGITS: Final = b"0123456789"
# An escape of U+0000 that is none of an escaped backslash.
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_LONG_NUMBER: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[0-9]{4301}')

_raw = msgspec.json.Decoder(msgspec.Raw)


def type_of(text: str) -> str:
    """The content type of a text that came without one: JSON if it is JSON, else plain text."""
    return JSON if is_json(text.encode()) else TEXT


def check_type(content_type: str) -> str:
    """A content type. Raises InvalidRequest."""
    if len(content_type) > MAX_TYPE_BYTES or _TYPE.match(content_type) is None:
        raise InvalidRequest(f"{content_type[:80]!r} is no content type: those are type/subtype.")
    return content_type


def stored_type(payload: bytes, content_type: str) -> str | None:
    """A content type as a job has it: None for JSON's. Raises InvalidRequest where the bytes are no such thing: they
    could not be shown."""
    match form_of(content_type):
        case PayloadForm.JSON:
            if not is_json(payload):
                check_json(payload)  # whose message names the bound
                raise InvalidRequest(f"The payload is no JSON that can be kept, which {content_type} says.")
        case PayloadForm.TEXT:
            if not is_utf8(payload):
                raise InvalidRequest(f"The payload is not UTF-8, which {content_type} must be here.")
        case PayloadForm.BYTES:
            pass
    return None if content_type == JSON else content_type


def is_json(payload: bytes) -> bool:
    """Whether bytes are JSON within the bounds of what a record may be: UTF-8, not too deep, without U+0000 and without
    numbers that are too long."""
    try:
        _raw.decode(payload)
        check_json(payload)
    except (msgspec.DecodeError, RecursionError, InvalidRequest):
        return False
    return is_utf8(payload) and not has_nul(payload)


def of_base64(text: str) -> bytes:
    """The bytes. Raises InvalidRequest for what is no base64 (RFC 4648, with its padding)."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("The payload is not base64.") from None


def to_base64(payload: bytes) -> bytes:
    """The bytes as base64: what can stand in JSON as it is."""
    return base64.b64encode(payload)


def has_nul(json: bytes) -> bool:
    """Whether JSON has an escape of U+0000, which PostgreSQL's text and json can't hold."""
    # A search for one byte is fifty times as fast as one for six, and most JSON has no escapes.
    return b"\\" in json and b"\\u0000" in json and _NUL.search(json) is not None


def check_json(json: bytes) -> None:
    """Refuse JSON that is nested more than MAX_DEPTH levels deep, or has a number of more than MAX_DIGITS digits.

    Raises InvalidRequest."""
    if len(json) <= 2 * MAX_DEPTH:
        return
    if json.count(b"[") + json.count(b"{") > MAX_DEPTH:
        _check_depth(json)
    # So many digits in a row have one at each of these places, wherever they begin.
    for place in range(MAX_DIGITS, len(json), MAX_DIGITS + 1):
        if json[place] in DIGITS and _digits_around(json, place) > MAX_DIGITS:
            _check_numbers(json)
            return


def _digits_around(json: bytes, place: int) -> int:
    """How many digits in a row there are at a place, those that are more than twice MAX_DIGITS away left out."""
    before = json[max(place - MAX_DIGITS, 0) : place]
    behind = json[place : place + MAX_DIGITS + 1]
    return len(before) - len(before.rstrip(DIGITS)) + len(behind) - len(behind.lstrip(DIGITS))


def _check_numbers(json: bytes) -> None:
    for token in _LONG_NUMBER.finditer(json):
        if token.group()[:1] != b'"':
            raise InvalidRequest(
                f"A number has more than {MAX_DIGITS} digits, which many programs can't read. Send it as a text."
            )


def _check_depth(json: bytes) -> None:
    depth = 0
    for token in _STRUCTURE.finditer(json):
        mark = token.group()
        if mark in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidRequest(f"A record is nested too deeply; {MAX_DEPTH} levels are the most.")
        elif mark in b"]}":
            depth -= 1
