"""A job in the worker's hands. There may be thousands, and thousands a second: this is all that is made for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import _trace

if TYPE_CHECKING:
    import asyncio

    from holdfast._heartbeats import Holding
    from holdfast._worker.context import Context, Why


class Taken:
    """A claimed job, as the answer has it; its payload is decoded by whoever runs it. `until` is when its lease ends at
    the soonest, by time.monotonic(), unless a `holding` of the heartbeats knows better. `task` runs it. `over`: it is
    settled, or about to be, or not ours any more. `completes`: its handler has it acked by a transaction of its own.
    `key`: of the object that its payload is in. `span`: of the work on it, where that is traced."""

    __slots__ = (
        *("body", "completes", "context", "holding", "key", "lease_id", "node", "over", "said", "seq", "signalled"),
        *("span", "task", "until"),
    )

    def __init__(self, body: dict[str, Any], node: str, until: float) -> None:
        self.body = body
        self.seq: int = body["$seq"]
        self.lease_id: str = body["lease_id"]
        self.node = node
        self.until = until
        self.holding: Holding | None = None
        self.context: Context[Any] | None = None
        self.signalled: Why | None = None
        self.task: asyncio.Task[None] | None = None
        self.over = False
        self.completes = False
        self.key: str | None = None
        self.said: Any = None
        self.span: _trace.Span | None = None

    def kept(self, now: float) -> bool:
        """Whether its lease holds, as far as this process knows: it may have been stopped for longer than that."""
        return now < self.until or (self.holding is not None and now < self.holding.deadline)

    def within(self, context: Context[Any]) -> Context[Any]:
        """Its handler is shown this."""
        self.context = context
        if self.signalled is not None:
            context.signal.set(self.signalled)
        return context

    def signal(self, why: Why) -> None:
        """Tell its handler that it is not to go on."""
        self.signalled = self.signalled or why
        if self.context is not None:
            self.context.signal.set(why)
