"""Hints between the workers of one service: sockets in a folder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app.base.metrics import Numbers, catalogue
from app.kernel.topics import hints
from app.kernel.topics.hints import Hints, Relay
from app.kernel.user_events import digest_of
from tests.topics.test_bus import until


class Worker:
    """What one worker says, and what it has heard."""

    def __init__(self, folder: Path, slot: int, slots: int = 3) -> None:
        self.numbers = Numbers()
        self.hints = Hints("service")
        self.heard: list[object] = []
        self.hints.topic_changed.subscribe(self.heard.append)
        self.hints.keys_changed.subscribe(lambda: self.heard.append("keys"))
        self.hints.work_made.subscribe(lambda topic_id, jobs: self.heard.append((topic_id, jobs)))
        self.hints.user_changed.subscribe(self.heard.append)
        self.hints.missed.subscribe(lambda: self.heard.append("missed"))
        self.relay = Relay(folder, slot, slots, self.hints, self.numbers)

    def count(self, outcome: str) -> float:
        return self.numbers.counter(catalogue.RELAY_HINTS, outcome).value


Start = Callable[..., Worker]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """A worker in a slot; `deaf`: it does not read."""
    started: list[Worker] = []

    def start(slot: int, *, deaf: bool = False) -> Worker:
        worker = Worker(tmp_path, slot)
        if not deaf:
            worker.relay.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        await worker.relay.stop()


async def test_all_others_hear_and_nobody_hears_itself(start: Start) -> None:
    one, two, three = start(0), start(1), start(2)
    one.hints.tell_changed("orders")
    one.hints.tell_work(7, 2)
    one.hints.tell_keys()
    one.hints.tell_user(digest_of("ada"))
    await until(lambda: all({"orders", (7, 2), "keys", digest_of("ada")} == set(other.heard) for other in (two, three)))
    assert one.heard == []
    assert one.count("sent") == 8
    assert two.count("heard") == three.count("heard") == 4


async def test_more_than_fits_into_a_datagram_arrives(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hints, "MOST_BYTES", 2_000)
    one, two = start(0), start(1)
    names = {f"{number}{'x' * 250}" for number in range(50)}
    for name in names:
        one.hints.tell_changed(name)
    await until(lambda: set(two.heard) == names)


async def test_one_that_came_again_hears_and_is_heard(start: Start) -> None:
    """What it said last, before it went, was said."""
    one, two = start(0), start(1)
    two.hints.tell_changed("last")
    await two.relay.stop()
    await until(lambda: one.heard == ["last"])
    one.hints.tell_changed("while it was away")
    await until(lambda: one.count("sent") == 2)
    again = start(1)
    one.hints.tell_changed("orders")
    await until(lambda: again.heard == ["orders"])
    again.hints.tell_changed("jobs")
    await until(lambda: one.heard == ["last", "jobs"])


async def test_who_does_not_read_holds_up_nobody_and_is_told_that_it_missed_something(start: Start) -> None:
    one, deaf, three = start(0), start(1, deaf=True), start(2)
    said = 0

    async def full() -> bool:
        nonlocal said
        for _ in range(100):
            one.hints.tell_changed(f"{said}{'x' * 250}")
            said += 1
        return one.count("dropped") > 0

    await until(full)
    await until(lambda: len(three.heard) == said)
    deaf.relay.start()
    await until(lambda: "missed" in deaf.heard)
    one.hints.tell_changed("orders")
    await until(lambda: "orders" in deaf.heard)
    assert "missed" not in three.heard


async def test_more_changes_than_wait_for_a_carrier_are_told_as_missed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hints, "MOST_WAITING", 3)
    one, two = start(0), start(1)
    for number in range(5):
        one.hints.tell_changed(str(number))
        one.hints.tell_work(number, 1)
    await until(lambda: {"0", "1", "2", "missed", "keys"} <= set(two.heard))
    assert "3" not in two.heard
    assert sum(isinstance(heard, tuple) for heard in two.heard) == 3


async def test_what_came_by_the_relay_does_not_wake_twice_and_what_is_no_hint_is_passed_over(start: Start) -> None:
    one, two = start(0), start(1)
    assert not two.hints.receive(f"w {one.hints.me} 7 2".encode())
    assert two.hints.receive(f"w {Hints('another').me} 7 3".encode())
    assert two.hints.receive(f"c {one.hints.me} orders".encode()), "to forget twice costs little"
    for junk in (b"", b"c", b"w p x 1", b"w p 1 " + b"9" * 200, b"\xff\xfe z", b"z p 1"):
        assert not two.hints.receive(junk)
    assert two.heard == [(7, 3), "orders"]


async def test_a_path_that_is_too_long_is_said(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    with pytest.raises(OSError, match="too long"):
        Relay(folder, 0, 2, Hints())
