"""What the scenarios of herds judge, on courses as they should be and as they should not."""

from __future__ import annotations

import pytest

from tools.chaos.herd.flock import SLOT, Course, together
from tools.chaos.herd.outage import Spans, judge, recovered
from tools.chaos.herd.verdict import Found

AT = Spans(base=0.0, down=10.0, up=40.0, ends=80.0)


def slots(*parts: tuple[float, float]) -> list[int]:
    """So many a second for so many seconds each."""
    return [round(rate * SLOT) for rate, seconds in parts for _ in range(round(seconds / SLOT))]


def course(*acked: tuple[float, float], away: float = 300, again: float = 3) -> Course:
    """100 jobs a second of 3 requests before; `away`: requests a second in the outage; `again`: a job's afterwards."""
    jobs = slots((100, 10), (0, 30), *acked)
    return Course(0.0, jobs, [*slots((300, 10), (away, 30)), *(round(n * again) for n in jobs[80:])], 0)


def failed(course: Course, left: int = 0) -> list[str]:
    return [one.what.split(",")[0] for one in judge(course, AT, left).found if not one.passed]


def test_who_comes_back_soon_and_quietly_passes() -> None:
    assert failed(course((50, 4), (100, 36), away=100)) == []
    assert recovered(course((50, 4), (100, 36)), 95, AT.up, AT.ends) == 4


@pytest.mark.parametrize(
    ("seen", "left", "why"),
    [
        (course((50, 20), (100, 20)), 0, "seconds until 95 % of the rate before is there again"),
        (course((100, 10), (90, 30)), 0, "the rate afterwards"),
        (course((100, 20), (20, 3), (120, 17)), 0, "the lowest two seconds afterwards"),
        (course((100, 40), away=400), 0, "requests a second in the outage"),
        (course((100, 40), again=4), 0, "requests a job afterwards"),
        (course((100, 40)), 1, "jobs left"),
    ],
)
def test_what_a_herd_does_wrong_is_named(seen: Course, left: int, why: str) -> None:
    assert why in failed(seen, left)


def test_who_never_comes_back_fails() -> None:
    assert failed(course((10, 40)))[0] == "seconds until 95 % of the rate before is there again"
    assert not Found("x", None, most=1).passed
    assert "never" in Found("x", None, most=1).line()


def test_processes_are_added_up() -> None:
    one = Course(5.0, [1, 2], [3, 4], 1)
    assert together([one, one]) == Course(5.0, [2, 4], [6, 8], 2)
