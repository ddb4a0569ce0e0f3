"""The kinds of payloads, by content type. docs/semantics.md, section 18."""

from __future__ import annotations

import base64
from enum import Enum

import msgspec


class PayloadForm(Enum):
    """How to read the bytes of a payload."""

    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


def form_of(content_type: str | None) -> PayloadForm:
    """The form of payloads with this content type; None is JSON."""
    if content_type is None:
        return PayloadForm.JSON
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return PayloadForm.JSON
    return PayloadForm.TEXT if kind.startswith("text/") else PayloadForm.BYTES


def is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_json(payload: bytes, content_type: str | None) -> bytes:
    """A payload as JSON: JSON unchanged, text as a string, other bytes as {"$base64": …}."""
    form = form_of(content_type)
    if form is PayloadForm.JSON:
        return payload
    if form is PayloadForm.TEXT and is_utf8(payload):
        return msgspec.json.encode(payload.decode())
    return b'{"$base64":"%b"}' % base64.b64encode(payload)
