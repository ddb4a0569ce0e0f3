"""How long jobs wait after a failed delivery. docs/retries.md has the formulas; holdfast.backoff_ms computes them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

MOST_MS: Final = 86_400_000  # a day
DEFAULT_BASE_MS: Final = 1_000
MOST_REFUNDS: Final = 3  # deliveries of a job that its workers can give back
SUSPECTED_FROM: Final = 2  # crashes from which on a job is suspected; the SQL statements have this number too

Millis = Annotated[int, Meta(ge=1, le=MOST_MS)]


class Backoff(msgspec.Struct, frozen=True):
    """How long a job waits after it was returned without a delay. The wait depends on its number of deliveries and is
    at most cap_ms. jitter subtracts a random part: with full up to all of the wait, with equal up to half."""

    kind: Annotated[
        Literal["none", "fixed", "linear", "exponential"],
        Meta(description="How the wait grows with the number of deliveries."),
    ] = "none"
    base_ms: Annotated[Millis, Meta(description="The wait after the first delivery.")] = DEFAULT_BASE_MS
    cap_ms: Annotated[Millis, Meta(description="The longest wait.")] = MOST_MS
    jitter: Annotated[
        Literal["none", "full", "equal"],
        Meta(description="The part of the wait that is subtracted at random: up to all, or up to half."),
    ] = "none"


class AskedBackoff(Backoff, frozen=True, forbid_unknown_fields=True):
    """How long a job waits after it was returned without a delay. The wait depends on its number of deliveries and is
    at most cap_ms. jitter subtracts a random part: with full up to all of the wait, with equal up to half."""


def is_suspect(crashes: int, original_crashes: int | None) -> bool:
    """Whether a job may be crashing its workers; for a dead letter, whether it was."""
    return crashes >= SUSPECTED_FROM or (original_crashes or 0) >= SUSPECTED_FROM
