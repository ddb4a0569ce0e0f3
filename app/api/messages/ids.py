"""Ids of messages: UUIDs of version 8 (RFC 9562) that say which job is meant, so that they need no index.

    xxxxxxxx-0000-800s-8sss-ssssssssssss        x: the topic's id, 32 bits   s: the job's seq, 63 bits

s has 1 bit of its own in the third group, 2 bits and 60 in the rest: what is left over is 0, and version and variant
are where the RFC has them. Any other UUID is no id of a message.
"""

from __future__ import annotations

import re
from typing import Final

from app.errors import NotFound
from app.queue.model import Seq
from app.topics.config import BIGINT_MAX

_SHAPE: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_LOW: Final = (1 << 62) - 1
_VARIANT: Final = 0b10 << 62
_MOST: Final = 1 << 31


def id_of(topic_id: int, seq: int) -> str:
    """The id of the message that is this job; of a dead letter, of the job that it was at first."""
    low = f"{_VARIANT | seq & _LOW:016x}"
    return f"{topic_id:08x}-0000-800{seq >> 62:x}-{low[:4]}-{low[4:]}"


def job_of(message_id: str) -> tuple[int, Seq]:
    """The topic's id and the seq. Raises NotFound for what is no id of a message."""
    text = message_id.lower()
    if _SHAPE.match(text) is not None:
        number = int(text.replace("-", ""), 16)
        topic_id, seq = number >> 96, (number >> 64 & 0xFFF) << 62 | number & _LOW
        if 0 < topic_id < _MOST and 0 < seq <= BIGINT_MAX and id_of(topic_id, seq) == text:
            return topic_id, Seq(seq)
    raise no_message(message_id)


def no_message(message_id: str) -> NotFound:
    """The refusal of an id that no message has, or that its caller does not hold."""
    return NotFound(f"There is no message {message_id[:80]!r}.")
