"""What a report says of the bound in time: the one that is promised, what was measured, and what a slow machine had."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.history.stories import history, served
from tools.chaos import page, report
from tools.chaos.round import Told
from tools.chaos.run import Run
from tools.history.facts import Facts
from tools.history.history import History, Outage
from tools.history.rules_of_service import longest_silence, unavailable


def story(patience: float) -> History:
    """No answer for 5.31 s, from when a fault begins."""
    return history(*served(995, 6305, 6400), Outage(1000, 6350, "kill_api"), patience)


def test_it_has_the_bound_beside_what_was_measured_and_allowed(tmp_path: Path) -> None:
    facts = Facts(story(1.1))
    assert list(unavailable(facts)) == [], "it is within what the machine is allowed"
    told = Told(1, 10.0, [], Counter(), 0, silence=longest_silence(facts))
    run = Run(7, tmp_path, 1.1, rounds=[told])
    sentence = (
        "Longest without an answer: 5.31 s (enqueue, kill_api), beyond the bound of 5.0 s; "
        "a machine 1.10 times as slow as the reference was allowed 5.50 s."
    )
    assert sentence in report.table(run)
    assert sentence in page.markdown(report.figures(run))


def test_a_fault_says_both_bounds() -> None:
    found = list(unavailable(Facts(story(1.05))))
    assert found
    assert any("5.31 s" in one for one in found)
    assert all("the bound is 5.0 s, allowed on this machine 5.25 s" in one for one in found)
