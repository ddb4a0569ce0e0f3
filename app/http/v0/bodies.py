"""What every answer of v0 has."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType


class Performance(msgspec.Struct, omit_defaults=True):
    """How long the answer took, in ms. fsync_ms: of it, the durable commit, the wait for its group included."""

    server_total_ms: float
    fsync_ms: float | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET
