"""How long jobs wait after a failed delivery. docs/retries.md has the formulas; holdfast.backoff_ms computes them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

MOST_MS: Final = 86_400_000
DEFAULT_BASE_MS: Final = 1_000
MOST_REFUNDS: Final = 3  # deliveries of a job that its workers can give back
SUSPECTED_FROM: Final = 2  # crashes from which on a job is suspected; the statements have it too

Millis = Annotated[int, Meta(ge=1, le=MOST_MS)]


class Backoff(msgspec.Struct, frozen=True):
    """How long a job waits after it was returned without a delay, by its number of deliveries. cap_ms is the longest
    wait. jitter takes a random part off: full up to all of it, equal up to half."""

    kind: Annotated[
        Literal["none", "fixed", "linear", "exponential"], Meta(description="How it grows from delivery to delivery.")
    ] = "none"
    base_ms: Annotated[Millis, Meta(description="How long after the first delivery.")] = DEFAULT_BASE_MS
    cap_ms: Annotated[Millis, Meta(description="How long at most.")] = MOST_MS
    jitter: Annotated[
        Literal["none", "full", "equal"],
        Meta(description="How much of the wait is taken off at random: up to all, or up to half."),
    ] = "none"


class AskedBackoff(Backoff, frozen=True, forbid_unknown_fields=True):
    """How long a job waits after it was returned without a delay, by its number of deliveries. cap_ms is the longest
    wait. jitter takes a random part off: full up to all of it, equal up to half."""


def is_suspect(crashes: int, original_crashes: int | None) -> bool:
    """Whether a job may be crashing its workers; for a dead letter, whether it was."""
    return crashes >= SUSPECTED_FROM or (original_crashes or 0) >= SUSPECTED_FROM
