"""Topics whose names promise an order: each of their jobs belongs to a group. docs/groups.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.errors import InvalidRequest

if TYPE_CHECKING:
    from app.kernel.model import Batch

FIFO: Final = ".fifo"  # how the names of topics end whose jobs all have groups, and dedupe ids: else the payload's hash


def check_groups(name: str, batch: Batch) -> None:
    """Whether a queue of this name takes these records. Raises InvalidRequest where names ask for groups and one has
    none."""
    if name.endswith(FIFO) and (len(batch.groups) < len(batch) or None in batch.groups):
        at = batch.groups.index(None) if None in batch.groups else len(batch.groups)
        raise InvalidRequest(
            f"Each record for {name!r} must have a group, since its name ends in {FIFO}: record {at} has none.",
            {"topic": name, "record": at},
        )
