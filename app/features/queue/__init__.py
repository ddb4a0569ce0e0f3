"""The hot routes: enqueue, claim, ack, nack, fail, extend, and the work stream."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.queue import (
    messages_claim,
    messages_enqueue,
    messages_settle,
    v0_append,
    v0_claim,
    v0_settle,
    v0_work,
)

FEATURE: Final = Feature(
    "queue",
    routers=[
        v0_append.router,
        v0_claim.router,
        v0_settle.router,
        messages_enqueue.router,
        messages_claim.router,
        messages_settle.router,
        v0_work.router,
    ],
)
