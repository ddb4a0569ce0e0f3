"""A job's events as its page tells them."""

from __future__ import annotations

from app.features.jobs.job_parts import LEASE_RAN_OUT, TimelineStep, strip_of, timeline
from app.kernel.ledger import Event

NOW = 1_000_000


def event(at: int, name: str, deliveries: int = 0, until: int | None = None, **more: str) -> Event:
    return Event(at, name, deliveries, until, more.get("node"), more.get("detail"))


def told(*events: Event) -> list[TimelineStep]:
    return timeline(events, NOW, lambda topic: topic != "secret")


def test_deliveries_by_how_they_ended() -> None:
    found = told(
        event(0, "enqueued"),
        event(10, "claimed", 1, 100, node="w1"),
        event(30, "released", 1, 60, node="w1", detail="boom"),
        event(70, "claimed", 2, 170, node="w2"),
        event(90, "extended", 2, 190, node="w2"),
        event(100, "extended", 2, 200, node="w2"),
        event(300, "claimed", 3, 400, node="w3"),
        event(350, "acked", 3, None, node="w3"),
    )
    assert [(one.title, one.delivery, one.ended, one.ms, one.error) for one in found] == [
        ("Enqueued", 0, "", None, None),
        ("Delivery", 1, "returned", 20, "boom"),
        ("Delivery", 2, LEASE_RAN_OUT, 130, None),
        ("Delivery", 3, "completed", 50, None),
    ]
    assert (found[1].until_ms, found[2].extended, found[3].until_ms) == (60, 2, None)
    assert strip_of(found, NOW) == [
        ("ready", 10),
        ("in-flight", 20),
        ("ready", 40),
        ("in-flight", 130),
        ("ready", 100),
        ("in-flight", 50),
    ]


def test_one_that_runs_and_one_whose_lease_has_run_out() -> None:
    (running,) = told(event(0, "claimed", 1, NOW + 5))
    assert (running.ended, running.ms, running.until_ms) == ("", None, NOW + 5)
    (ended,) = told(event(0, "claimed", 1, NOW - 5))
    assert (ended.ended, ended.ms) == (LEASE_RAN_OUT, NOW - 5)
    assert strip_of([ended], NOW) == [("ready", 0), ("in-flight", NOW - 5), ("ready", 5)]


def test_what_came_after_the_deadline_is_no_holders_word() -> None:
    found = told(event(0, "claimed", 1, 100), event(150, "dead_lettered", 1, detail="boom"))
    assert [(one.title, one.ended, one.error) for one in found] == [
        ("Delivery", LEASE_RAN_OUT, None),
        ("Became a dead letter", "", "boom"),
    ]
    (by_word,) = told(event(0, "claimed", 1, 100), event(50, "dead_lettered", 1, detail="boom"))
    assert (by_word.ended, by_word.error) == ("became a dead letter", "boom")
    found = told(event(0, "claimed", 1, 100), event(40, "updated", 1, detail="to be cancelled"), event(60, "acked", 1))
    assert [(one.title, one.ended) for one in found] == [
        ("Delivery", "completed"),
        ("Cancelled; its worker is told", ""),
    ]


def test_topics_that_the_viewer_may_not_see_are_not_named() -> None:
    found = told(event(0, "requeued", detail="from secret 7"), event(1, "requeued", detail="to orders 8"))
    assert [one.note for one in found] == ["from another topic", "to orders 8"]


def test_what_was_never_claimed_has_no_life_to_draw() -> None:
    assert strip_of(told(event(0, "enqueued"), event(5, "expired")), NOW) == []
    assert strip_of([], NOW) == []
