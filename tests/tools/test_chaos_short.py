"""A round of faults, each kind at least once, beside traffic whose history is checked. `make chaos` is the long run.

HOLDFAST_TEST_SEED: the seed of an earlier run.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

import pytest

from tools.chaos.faults import FAULTS
from tools.chaos.run import Options, run

SECONDS: Final = 75.0
DOUBTS: Final = 200  # a run with few of them proves little

pytestmark = [pytest.mark.alone, pytest.mark.slow]


@pytest.mark.timeout(480)
async def test_nothing_promised_is_lost_in_faults(capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("HOLDFAST_TEST_SEED") or secrets.randbelow(2**32))
    with capsys.disabled():
        print()
        done = await run(Options(seed, SECONDS, list(FAULTS)))
    assert done.faults == [], f"seed {seed}; all is in {done.folder}"
    [told] = done.rounds
    assert told.recoveries.keys() >= FAULTS.keys(), "each came once"
    assert told.swallowed > 20
    assert told.sums["calls in doubt"] >= DOUBTS
    assert told.sums["dead letters"] > 0
    assert told.sums["records of logs, done"] > 100
