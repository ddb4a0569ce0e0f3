"""Ids of messages, from outside. app/kernel/model.py has what they are made of."""

from __future__ import annotations

import re
from typing import Final

from app.errors import NotFound
from app.http.openapi import path
from app.kernel.model import LOW_BITS, Seq, id_of
from app.kernel.topics.settings import BIGINT_MAX

_SHAPE: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_MOST: Final = 1 << 31
ID: Final = {**path("id", "The message's id.", {"type": "string"}), "example": "00000001-0000-8000-8000-000000000001"}


def job_of(message_id: str) -> tuple[int, Seq]:
    """The topic's id and the seq. Raises NotFound for what is no id of a message."""
    text = message_id.lower()
    if _SHAPE.match(text) is not None:
        number = int(text.replace("-", ""), 16)
        topic_id, seq = number >> 96, (number >> 64 & 0xFFF) << 62 | number & LOW_BITS
        if 0 < topic_id < _MOST and 0 < seq <= BIGINT_MAX and id_of(topic_id, seq) == text:
            return topic_id, Seq(seq)
    raise no_message(message_id)


def no_message(message_id: str) -> NotFound:
    """The refusal of an id that no message has, or that its caller does not hold."""
    return NotFound(f"There is no message {message_id[:80]!r}.")
