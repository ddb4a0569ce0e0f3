"""What the benchmarks make of what they measured; that each bar can be taken at all is the suite `bench`."""

from __future__ import annotations

import pytest

from tools.bench.__main__ import main, payload
from tools.bench.bars import BARS
from tools.bench.figures import Bound, Figure, Ratio, held, in_turns, table
from tools.bench.load import data_of


def test_a_ratio_is_of_medians_and_passes_at_its_least() -> None:
    figure = Ratio("claims", "jobs", [80, 90, 1], [100, 100, 500], 0.80)
    assert figure.ratio == 0.80
    assert figure.passed
    assert not Ratio("claims", "jobs", [79], [100], 0.80).passed
    assert figure.record()["rates"] == [80, 90, 1]


def test_a_bound_passes_at_its_most() -> None:
    assert Bound("memory", "MB", 250, 250, [250]).passed
    assert not Bound("memory", "MB", 250.1, 250, [250.1]).passed


def test_the_table_says_what_was_missed_and_a_quick_one_does_not() -> None:
    figures: list[Figure] = [Bound("memory", "MB", 251, 250, ()), Ratio("claims", "jobs", [1], [1], 0.9)]
    memory, claims = table(figures).splitlines()
    assert memory.endswith("MISSED")
    assert claims.endswith("pass")
    assert "MISSED" not in table(figures, verdicts=False)


def test_a_bar_of_several_runs_passes_when_it_held_in_each() -> None:
    runs = [Bound("memory", "MB", value, 250, ()) for value in (249, 251)] + [Bound("other", "MB", 1, 2, ())]
    memory, other = held(runs).splitlines()
    assert "1 of 2 runs" in memory
    assert memory.endswith("MISSED")
    assert other.endswith("pass")


async def test_both_sides_of_a_ratio_take_turns_in_going_first() -> None:
    order: list[str] = []

    async def measure(side: str) -> float:
        order.append(side)
        return len(order)

    assert await in_turns(2, lambda: measure("rate"), lambda: measure("base")) == ([1, 4], [2, 3])
    assert order == ["rate", "base", "base", "rate"]


@pytest.mark.parametrize(("text", "size"), [("256", 256), ("0.1k", 100), ("1k", 1000), ("10k", 10_000)])
def test_a_payload_is_bytes_or_thousands_of_them(text: str, size: int) -> None:
    assert payload(text) == size
    assert len(data_of(size)) == size


@pytest.mark.parametrize("text", ["", "0", "k", "-1", "1M", "1001k"])
def test_a_payload_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        payload(text)


def test_the_list_describes_every_bar(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(BARS)
    assert all(len(line.split()) > 5 for line in lines)
