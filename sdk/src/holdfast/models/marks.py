"""Marks in the type hints of answers: how a field is read where its name and type do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PAYLOAD: Final = "payload"  # what a producer put in, of which bytes have a form of their own


@dataclass(frozen=True, slots=True)
class Named:
    """The field has another name in the answer."""

    wire: str
