"""What was read of a topic."""

from __future__ import annotations

import msgspec

from app.kernel.logs.log import Extent, Records
from app.kernel.topics.policy import Policy


class Diff(msgspec.Struct, frozen=True):
    """What a reader gets. `extent` is of the same snapshot as the records, where the topic is a log."""

    extent: Extent
    records: Records


class Read:
    """What was read, for all who asked; `mark` is the readers' from when the statement was sent. `shown` is what an
    edge makes of it, and `alone` the same for those who watch nothing else: whoever is first fills them in."""

    __slots__ = ("alone", "diff", "mark", "policy", "shown")

    def __init__(self, diff: Diff, policy: Policy, mark: int) -> None:
        self.diff = diff
        self.policy = policy
        self.mark = mark
        self.shown: bytes | None = None
        self.alone: bytes | None = None
