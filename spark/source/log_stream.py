"""A log as a stream: its appends are committed in the order of their seqs (docs/adr/0015), so an offset is one seq."""

from __future__ import annotations

from spark.errors import Mistake
from spark.source import logs
from spark.source.connection import Connection
from spark.source.logs import State
from spark.source.plans import Part, Span, cut
from spark.source.streams import Offset, Stream
from spark.source.stretches import Seqs
from spark.windows import instant


class LogStream(Stream):
    """Offsets have `topic_id` and `seq`, up to which all was read."""

    def first(self, connection: Connection) -> Offset:
        state, starting = logs.state(connection, self.topic), self.asked.starting
        if starting == "earliest":
            seq = state.earliest - 1
        elif starting == "latest":
            seq = state.head
        elif starting.isdecimal():
            seq = int(starting) - 1
        else:
            seq = logs.before(connection, self.topic, instant(starting, "option starting"), 0, state.head)
        return {"topic_id": state.topic_id, "seq": min(max(seq, state.earliest - 1), state.head)}

    def newest(self, connection: Connection) -> int:
        return logs.state(connection, self.topic).head

    def next(self, connection: Connection, start: Offset, most: int | None) -> Offset:
        head = self.checked(connection, start).head
        if self.target is not None:
            head = min(head, self.target)
        seq = head if most is None else min(head, start["seq"] + most)
        return start if seq <= start["seq"] else {"topic_id": start["topic_id"], "seq": seq}

    def parts(self, connection: Connection, start: Offset, end: Offset) -> list[Part]:
        self.checked(connection, start)
        whole = Span(self.topic, start["seq"], end["seq"])
        return [
            Part([Seqs(self.topic, one.low, one.high, self.asked.may_lack)])
            for [one] in cut([whole], self.asked.read.partitions or 1)
        ]

    def checked(self, connection: Connection, start: Offset) -> State:
        """The log's state. Raises Mistake if it isn't the one that was read so far, or what comes next is lost."""
        state = logs.state(connection, self.topic)
        if state.topic_id != start["topic_id"] or state.head < start["seq"]:
            raise Mistake(f"log {self.topic} was deleted and made anew: start with a new checkpoint")
        if state.lost > start["seq"] and not self.asked.may_lack:
            raise Mistake(
                f"log {self.topic}: records behind {start['seq']}, up to {state.lost}, were removed by age or caps "
                "before they were read; go on without them by option lost=skip, or start with a new checkpoint"
            )
        return state

    @property
    def topic(self) -> str:
        if self.asked.read.topic is None:
            raise Mistake("option topic is needed: a stream of records reads one log")
        return self.asked.read.topic
