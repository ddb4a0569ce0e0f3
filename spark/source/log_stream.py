"""A log as a stream. Appends commit in the order of their seqs (docs/adr/0015), so an offset is one seq."""

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
    """A stream of a log. Offsets have `topic_id`, and `seq` up to which everything was read."""

    def first(self, connection: Connection) -> Offset:
        state, starting = logs.state(connection, self.topic), self.options.starting
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
        head = self.check_state(connection, start).head
        if self.target is not None:
            head = min(head, self.target)
        seq = head if most is None else min(head, start["seq"] + most)
        return start if seq <= start["seq"] else {"topic_id": start["topic_id"], "seq": seq}

    def parts(self, connection: Connection, start: Offset, end: Offset) -> list[Part]:
        self.check_state(connection, start)
        whole = Span(self.topic, start["seq"], end["seq"])
        return [
            Part([Seqs(self.topic, one.low, one.high, self.options.may_lack)])
            for [one] in cut([whole], self.options.read.partitions or 1)
        ]

    def check_state(self, connection: Connection, start: Offset) -> State:
        """The log's state. Raises Mistake if the log was recreated, or if its next records are lost."""
        state = logs.state(connection, self.topic)
        if state.topic_id != start["topic_id"] or state.head < start["seq"]:
            raise Mistake(f"log {self.topic} was deleted and created again: start with a new checkpoint")
        if state.lost > start["seq"] and not self.options.may_lack:
            raise Mistake(
                f"log {self.topic}: records after seq {start['seq']}, up to {state.lost}, were removed by age or caps "
                "before they were read. Set option lost=skip to go on without them, or start with a new checkpoint"
            )
        return state

    @property
    def topic(self) -> str:
        if self.options.read.topic is None:
            raise Mistake("option topic is required: a stream of records reads one log")
        return self.options.read.topic
