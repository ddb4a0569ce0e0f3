"""What a soak judges, on samples that grow and on some that don't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tools.chaos.measure import Sample
from tools.chaos.soak import SHARE, each, judge, table, warm

HOUR = 3600.0
FLAT = Sample(0.0, rss_mib=150, fds=60, backends=24, tables_mib=0, hot_mib=4, dead_rows=500, wal_mib=0, jobs=0)


def course(hours: float, **an_hour: float) -> list[Sample]:
    """A sample a minute, of what grows by so much an hour; besides each job takes 2 KiB of the log and 1 of tables."""
    samples = []
    for minute in range(round(hours * 60) + 1):
        jobs = 1000 * minute
        grown = {name: getattr(FLAT, name) + by * minute / 60 for name, by in an_hour.items()}
        known = replace(FLAT, at=minute * 60.0, jobs=jobs, wal_mib=jobs * 2 / 1024, tables_mib=jobs / 1024)
        samples.append(replace(known, **grown))
    return samples


def failed(samples: Sequence[Sample]) -> list[str]:
    return [one.name for one in judge(samples) if not one.passed]


def test_what_does_not_grow_passes_and_what_does_is_named() -> None:
    assert failed(course(6)) == []
    assert failed(course(6, rss_mib=0.9)) == []
    assert failed(course(6, rss_mib=1.5)) == ["MiB of memory"]
    assert failed(course(6, backends=2)) == ["sessions of the database"]
    assert failed(course(6, fds=3, hot_mib=5)) == ["open files", "MiB of jobs and their indexes"]
    assert failed(course(6, dead_rows=6000)) == ["dead rows of jobs"]


def test_some_minutes_are_not_judged_by_what_they_would_be_in_hours() -> None:
    assert failed(course(0.2, rss_mib=20)) == []
    assert failed(course(0.2, rss_mib=200)) == ["MiB of memory"]


def test_the_first_hour_is_warm_up_and_half_of_what_is_shorter() -> None:
    assert warm(course(6))[0].at == HOUR
    assert warm(course(1))[0].at == HOUR / 2
    late = [replace(one, rss_mib=min(one.at / HOUR, 1.0) * 100) for one in course(6)]
    assert failed(late) == []


def test_a_job_that_takes_more_than_the_first_ones_is_seen_also_beside_crashes() -> None:
    samples = course(6)
    dearer = [replace(one, wal_mib=one.wal_mib * (1 + one.at / (6 * HOUR))) for one in samples]
    assert failed(dearer) == ["KiB of the log a job"]
    crashed = [replace(one, jobs=one.jobs if one.at < 4 * HOUR else one.jobs - 240_000) for one in samples]
    assert failed(crashed) == []
    first = each(samples, lambda one: one.wal_mib * 1024)
    assert first is not None
    assert round(first, 3) == 2


def test_a_run_too_short_to_judge_says_so() -> None:
    assert list(judge([]))[-1].bound is None
    assert "not judged" in table(list(judge(course(0.03))))
    assert f"| {SHARE:g} | passed" in table(list(judge(course(6))))
