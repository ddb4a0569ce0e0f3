"""Payloads: bytes and a content type. docs/semantics.md, section 18."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

import msgspec

from app.errors import InvalidRequest
from app.kernel.model import PayloadForm, form_of, is_utf8

JSON: Final = "application/json"
TEXT: Final = "text/plain"
BYTES: Final = "application/octet-stream"

MAX_TYPE_BYTES: Final = 255
TYPE_PATTERN: Final = "^[!#$&^_.+A-Za-z0-9-]+/[!#$&^_.+A-Za-z0-9-]+( *;[ -~]*)?$"
_TYPE: Final = re.compile(TYPE_PATTERN[:-1] + r"\Z")

MAX_DEPTH: Final = 128
MAX_DIGITS: Final = 4_300  # the longest number that Python parses
DIGITS: Final = b"0123456789"
# An escape of U+0000, not preceded by an escaping backslash.
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_LONG_NUMBER: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[0-9]{4301}')

_raw = msgspec.json.Decoder(msgspec.Raw)


def type_of(text: str) -> str:
    """The default content type of a text: JSON if it is JSON, else plain text."""
    return JSON if is_json(text.encode()) else TEXT


def check_type(content_type: str) -> str:
    """The content type, if valid. Raises InvalidRequest."""
    if len(content_type) > MAX_TYPE_BYTES or _TYPE.match(content_type) is None:
        raise InvalidRequest(f"{content_type[:80]!r} is not a content type. Content types have the form type/subtype.")
    return content_type


def stored_type(payload: bytes, content_type: str) -> str | None:
    """The content type to store with a job; None for JSON. Raises InvalidRequest if the bytes don't match it."""
    match form_of(content_type):
        case PayloadForm.JSON:
            if not is_json(payload):
                check_json(payload)  # its message names the limit
                raise InvalidRequest(f"The payload is not valid JSON, but its content type is {content_type}.")
        case PayloadForm.TEXT:
            if not is_utf8(payload):
                raise InvalidRequest(f"The payload is not UTF-8. A payload of type {content_type} must be.")
        case PayloadForm.BYTES:
            pass
    return None if content_type == JSON else content_type


def is_json(payload: bytes) -> bool:
    """Whether bytes are JSON that a record can hold: UTF-8 without U+0000, within MAX_DEPTH and MAX_DIGITS."""
    try:
        _raw.decode(payload)
        check_json(payload)
    except (msgspec.DecodeError, RecursionError, InvalidRequest):
        return False
    return is_utf8(payload) and not has_nul(payload)


def of_base64(text: str) -> bytes:
    """Decode base64 with padding (RFC 4648). Raises InvalidRequest."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("The payload is not base64.") from None


def to_base64(payload: bytes) -> bytes:
    """Encode bytes as base64."""
    return base64.b64encode(payload)


def has_nul(json: bytes) -> bool:
    """Whether JSON has an escape of U+0000, which PostgreSQL's text and json can't hold."""
    # Most JSON has no escapes, and the search for one byte is 50 times as fast as the one for six.
    return b"\\" in json and b"\\u0000" in json and _NUL.search(json) is not None


def check_json(json: bytes) -> None:
    """Raises InvalidRequest for JSON with more than MAX_DEPTH levels, or a number of more than MAX_DIGITS digits."""
    if len(json) <= 2 * MAX_DEPTH:
        return
    if json.count(b"[") + json.count(b"{") > MAX_DEPTH:
        _check_depth(json)
    # A longer run of digits covers at least one of these positions.
    for place in range(MAX_DIGITS, len(json), MAX_DIGITS + 1):
        if json[place] in DIGITS and _digits_around(json, place) > MAX_DIGITS:
            _check_numbers(json)
            return


def _digits_around(json: bytes, place: int) -> int:
    """The length of the run of digits at a position, looking at most MAX_DIGITS to each side."""
    before = json[max(place - MAX_DIGITS, 0) : place]
    behind = json[place : place + MAX_DIGITS + 1]
    return len(before) - len(before.rstrip(DIGITS)) + len(behind) - len(behind.lstrip(DIGITS))


def _check_numbers(json: bytes) -> None:
    for token in _LONG_NUMBER.finditer(json):
        if token.group()[:1] != b'"':
            raise InvalidRequest(
                f"A number has more than {MAX_DIGITS} digits. Many programs can't read it. Send it as a string."
            )


def _check_depth(json: bytes) -> None:
    depth = 0
    for token in _STRUCTURE.finditer(json):
        mark = token.group()
        if mark in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise InvalidRequest(f"A record is nested too deeply. The limit is {MAX_DEPTH} levels.")
        elif mark in b"]}":
            depth -= 1
