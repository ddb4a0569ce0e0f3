"""Annotations in the type hints of answers, for the decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PAYLOAD: Final = "payload"  # a payload; bytes are {"$base64": "…"}


@dataclass(frozen=True, slots=True)
class Named:
    """The field has another name in the answer."""

    wire: str
