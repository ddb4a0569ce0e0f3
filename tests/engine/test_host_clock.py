"""Deadlines, delays and times to live are by the database's clock: a host whose clock is off does as any other."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app.kernel.claim.consumer import Return
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import Session, batch, held

KERNEL = Path(__file__).parents[2] / "app/kernel"
HOUR = 3600
NEAR = 30.0  # seconds that a slow machine may take, and far less than an hour
ASKS = re.compile(r"\btime\.(time|time_ns|gmtime|localtime)\(|\bdatetime\.(now|utcnow|today)\(")


@pytest.mark.parametrize("off", [HOUR, -HOUR])
async def test_of_a_host_whose_clock_is_off(
    off: int,
    machine: Machine,
    queue: Policy,
    connect: Callable[[], Awaitable[Session]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, right_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: right() + off)
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + off * 10**9)
    await machine.enqueue(queue, batch(4, delays_ms=[None, None, None, 60_000], ttls_ms=[None, None, 60_000]))
    extended, returned, claimed = await machine.claim(queue, 3, lease_ms=60_000)
    assert list(await machine.engine.settlements.extend(queue, [held(extended)], 60_000)) == [0]
    await machine.nack(queue, [returned], Return(delay_ms=60_000))
    rows = await (await connect()).fetch(
        "SELECT seq, extract(epoch FROM visible_at - clock_timestamp())::float8 AS left, "
        "extract(epoch FROM expires_at - clock_timestamp())::float8 AS lives, "
        "extract(epoch FROM clock_timestamp() - created_at)::float8 AS age, "
        "extract(epoch FROM clock_timestamp())::float8 AS now FROM holdfast.jobs WHERE topic = $1",
        queue.topic.name,
    )
    far = {f"the time of job {row['seq']}": row["left"] for row in rows if abs(row["left"] - 60) > NEAR}
    far |= {f"the life of job {row['seq']}": row["lives"] for row in rows if abs((row["lives"] or 60) - 60) > NEAR}
    far |= {f"the age of job {row['seq']}": row["age"] for row in rows if abs(row["age"]) > NEAR}
    if abs(told := claimed.deadline_ms / 1000 - rows[0]["now"] - 60) > NEAR:
        far["the deadline as it was told"] = told
    assert far == {}, "times that are by the clock of the host"


def test_no_code_of_the_queue_asks_its_host_what_time_it_is() -> None:
    """But for when a topic was last used, which is shown."""
    found = {str(path.relative_to(KERNEL)) for path in KERNEL.rglob("*.py") if ASKS.search(path.read_text())}
    assert found == {"topics/last_used.py"}
