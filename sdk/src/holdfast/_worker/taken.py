"""A job that a worker holds. Kept small, because there may be thousands a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast import _trace

if TYPE_CHECKING:
    import asyncio

    from holdfast._heartbeats import Holding
    from holdfast._worker.context import Context, Why


class Taken:
    """A claimed job. `body` is the job in the claim's answer, with its payload still encoded.

    - until: the earliest end of its lease, by time.monotonic(). A `holding` of the heartbeats takes precedence.
    - task: runs the job.
    - over: the job is settled, is about to be, or its lease was lost.
    - completes: the handler acks the job in its own transaction.
    - key: the object with its payload.
    - span: the span of the run, if traced.
    """

    __slots__ = (
        *("body", "completes", "context", "holding", "key", "lease_id", "node", "over", "detail", "seq", "signalled"),
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
        self.detail: Any = None
        self.span: _trace.Span | None = None

    def is_valid(self, now: float) -> bool:
        """Whether the lease is valid, as far as this process knows. The process may have been suspended."""
        return now < self.until or (self.holding is not None and now < self.holding.deadline)

    def within(self, context: Context[Any]) -> Context[Any]:
        """Set the handler's context. Returns it."""
        self.context = context
        if self.signalled is not None:
            context.signal.set(self.signalled)
        return context

    def signal(self, why: Why) -> None:
        """Tell the handler to stop."""
        self.signalled = self.signalled or why
        if self.context is not None:
            self.context.signal.set(why)
