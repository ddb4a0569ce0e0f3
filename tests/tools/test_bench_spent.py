"""The processor's time is taken of the processes that it is said to be of."""

from __future__ import annotations

import os
import sys
import time

import pytest

from tools.bench import spent
from tools.bench.bench import running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the scheduler's times are Linux'")


def test_a_process_runs_as_long_as_it_says() -> None:
    before, began = spent.ran(os.getpid()), time.process_time()
    while time.process_time() - began < 0.05:
        pass
    assert 0.04 < spent.ran(os.getpid()) - before < 0.2
    assert spent.ran(2**22 + 1) == 0.0


async def test_a_cycle_by_process_and_by_verb() -> None:
    async with running(256, None) as bench:
        processes = await spent.over_http(bench, 1_000, 100)
        verbs = await spent.by_verb(bench, 1_000, 100)
    assert {"by the clock", "service", "load", "PostgreSQL's sessions"} <= processes.keys()
    assert verbs.keys() == {
        f"{verb}, {what}" for verb in ("enqueue", "claim", "ack") for what in ("PostgreSQL", "core")
    }
    assert min(verbs.values()) > 0
