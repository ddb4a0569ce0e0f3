"""The state of logs, and the seq of a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from spark.errors import Mistake
from spark.source.connection import Connection, ask

_STATE: Final = """
    SELECT l.topic_id, l.head_seq, l.earliest_seq, greatest(l.cap_lost_to, l.ttl_lost_to)
    FROM holdfast.topics t JOIN holdfast.log_state l ON l.topic = t.name AND l.topic_id = t.id
    WHERE t.name = %s ORDER BY l.version DESC LIMIT 1"""
_FROM: Final = "SELECT seq, created_at FROM holdfast.records WHERE topic = %s AND seq >= %s ORDER BY seq LIMIT 1"


@dataclass(frozen=True, slots=True)
class State:
    """All records up to `head` are committed. Some up to `lost` were removed by age or caps; 0: none."""

    topic_id: int
    head: int
    earliest: int
    lost: int


def state(connection: Connection, topic: str) -> State:
    """A log's state. Raises Mistake if there is no such log."""
    found = ask(connection, _STATE, [topic])
    if not found:
        raise Mistake(f"option topic={topic}: there is no log of that name")
    return State(*found[0])


def before(connection: Connection, topic: str, instant: datetime, low: int, high: int) -> int:
    """The last seq in low..high up to which all records are older than `instant`. Times in a log never decrease."""
    while low < high:
        middle = (low + high + 1) // 2
        found = ask(connection, _FROM, [topic, middle])
        if found and found[0][1] < instant:
            low = min(high, found[0][0])
        else:
            high = middle - 1
    return low
