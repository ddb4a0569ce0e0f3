"""What runs without the service loses nothing, and its rates are those of whole cycles."""

from __future__ import annotations

import pytest

from tests.queue.calls import Session
from tools.bench import floor
from tools.bench.bench import running
from tools.bench.floor import Rates


async def test_every_job_goes_through() -> None:
    async with running(256, None) as bench:
        for side in (floor.statements, floor.bare):
            for connections in (1, 3):
                rates = await side(bench, 1_000, connections, 100)
                assert 1 / rates.cycle == pytest.approx(1 / rates.enqueue + 1 / rates.run)
        assert await bench.db.fetchval("SELECT count(*) FROM bare") == 0
        assert await bench.db.fetchval("SELECT count(*) FROM holdfast.jobs") == 0


async def test_a_job_that_never_comes_is_noticed() -> None:
    class Forgetful(floor.Bare):
        async def ack(self, db: Session, jobs: object) -> int:
            return 0

    async with running(256, None) as bench:
        await bench.db.execute(floor.BARE)
        with pytest.raises(RuntimeError, match="0 jobs came out of 200"):
            await floor.cycle(Forgetful("floor", [b"{}"] * 100), [bench.db], 2, 100)


def test_a_ratio_is_of_medians() -> None:
    taken = {"a": [Rates(1, 1, 10), Rates(1, 1, 30), Rates(1, 1, 20)], "b": [Rates(9, 9, 50)] * 3}
    assert floor.table(taken, "a").splitlines()[2].split()[-1] == "2.50"
