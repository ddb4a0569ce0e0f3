"""How long jobs wait after a delivery that failed. docs/retries.md has the formulas; holdfast.backoff_ms does them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

MOST_MS: Final = 86_400_000
DEFAULT_BASE_MS: Final = 1_000
MOST_REFUNDS: Final = 3  # deliveries that a job is given back at its holders' wish
SUSPECTED_FROM: Final = 2  # crashes from which on a job is suspected; the statements have it too

Millis = Annotated[int, Meta(ge=1, le=MOST_MS)]


class Backoff(msgspec.Struct, frozen=True):
    """How long a job waits that was returned without a delay, by how often it was delivered. cap_ms is the most that it
    waits. jitter: full takes off up to all of it, equal up to half, by chance."""

    kind: Annotated[
        Literal["none", "fixed", "linear", "exponential"], Meta(description="How it grows from delivery to delivery.")
    ] = "none"
    base_ms: Annotated[Millis, Meta(description="How long after the first delivery.")] = DEFAULT_BASE_MS
    cap_ms: Annotated[Millis, Meta(description="How long at most.")] = MOST_MS
    jitter: Annotated[
        Literal["none", "full", "equal"], Meta(description="What is taken off by chance: up to all, or up to half.")
    ] = "none"


class AskedBackoff(Backoff, frozen=True, forbid_unknown_fields=True):
    """How long a job waits that was returned without a delay, by how often it was delivered. cap_ms is the most that it
    waits. jitter: full takes off up to all of it, equal up to half, by chance."""


def is_suspect(crashes: int, original_crashes: int | None) -> bool:
    """Whether a job may be what kills its workers; of a dead letter, whether it was."""
    return crashes >= SUSPECTED_FROM or (original_crashes or 0) >= SUSPECTED_FROM
