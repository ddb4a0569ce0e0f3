"""What is drawn for the state machine: records, jobs that were handed out, and settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hypothesis import strategies as st

from tests.model.model import Limits

Records: TypeAlias = list[tuple[int, int | None, int | None, int | None]]
Picks: TypeAlias = list[tuple[str, int, str]]
Keyed: TypeAlias = tuple[bool, str, int | None, int | None, int | None]

FENCES = ("both", "both", "both", "lease", "node", "foreign", "foreign node", "forged")
NODES = st.sampled_from(["a", "b"])
LEASES = st.sampled_from([100, 60_000])
DELAYS = st.sampled_from([0, 50])
AT_ONCE = st.sampled_from([False, False, False, True])
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from([None, 0, 50]),
        st.sampled_from([None, None, 80]),
        st.sampled_from([None, 1, 2]),
    ),
    min_size=1,
    max_size=5,
)
# One record with a key: that of a job that is being worked on, if there is one, or which; its delay, its time to live,
# and its own limit.
KEYED = st.tuples(
    st.booleans(),
    st.sampled_from(["x", "y"]),
    st.sampled_from([None, None, 50]),
    st.sampled_from([None, None, 80]),
    st.sampled_from([None, None, 2]),
)
# Jobs that were handed out: one that is leased now, one of these with a key, or an earlier hand-out; and how the caller
# names itself.
PICKS = st.lists(
    st.tuples(st.sampled_from(["leased", "keyed", "keyed", "any"]), st.integers(0, 8), st.sampled_from(FENCES)),
    min_size=1,
    max_size=4,
)
LIMITS = st.builds(Limits, st.sampled_from(["redeliver", "fail", "dead_letter"]), st.integers(0, 3))


@dataclass(frozen=True, slots=True)
class Handed:
    """A job as somebody was given it, perhaps in an earlier topic of the name."""

    seq: int
    lease: str
    node: str
