"""What sets failing jobs apart: by hand, and against chance."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from spark.analysis.contrast import MOST_FEATURES, Feature, features, fisher, marks, range_start


def counted(documents: Sequence[object]) -> Counter[Feature]:
    return Counter(one for document in documents for one in features(json.dumps(document).encode(), None))


def test_features_of_a_job_by_hand() -> None:
    found = set(features(b'{"a": {"b": 7}, "tags": ["x", "x"], "ok": null}', '{"version": "1.2"}'))
    assert found == {
        ("$", "type", "object"),
        ("$.a", "type", "object"),
        ("$.a.b", "type", "number"),
        ("$.a.b", "value", "7"),
        ("$.a.b", "number", "5"),
        ("$.tags", "type", "array"),
        ("$.tags.length", "number", "2"),
        ("$.tags[]", "type", "string"),
        ("$.tags[]", "value", '"x"'),
        ("$.ok", "type", "null"),
        ("$.ok", "value", "null"),
        ("meta", "type", "object"),
        ("meta.version", "type", "string"),
        ("meta.version", "value", '"1.2"'),
    }
    assert features(b"\xff\x00", None) == [("$", "type", "not JSON")]
    assert features(b'{"n": NaN, "x": 1e999}', None)
    assert features(b"[" * 5000 + b"]" * 5000, None) in ([("$", "type", "not JSON")], features(b"[[[[[[[]]]]]]]", None))
    assert len(features(json.dumps({f"k{n}": n for n in range(1_000)}).encode(), None)) == MOST_FEATURES


@pytest.mark.parametrize(
    ("number", "begins"),
    [(0, "0"), (1, "1"), (1.9, "1"), (2, "2"), (4.99, "2"), (7, "5"), (999, "500"), (1000, "1000"), (0.07, "0.05"),
     (-1, "-1"), (-3, "-5"), (-7, "-10"), (1e305, "1e+300")],
)  # fmt: skip
def test_ranges_begin_at_round_numbers(number: float, begins: str) -> None:
    assert range_start(number) == begins


def test_fishers_test_is_that_of_the_tea() -> None:
    """The lady tasting tea: all four right of eight cups has a chance of 1/70; three or more right, 17/70."""
    assert fisher(4, 4, 0, 4) == pytest.approx(1 / 70)
    assert fisher(3, 4, 1, 4) == pytest.approx(17 / 70)
    assert fisher(0, 4, 4, 4) == pytest.approx(1)
    assert fisher(500, 1_000, 500_000, 1_000_000) == pytest.approx(0.5, abs=0.02)


def test_what_sets_them_apart_is_found_with_its_counts() -> None:
    """20 of 25 failing jobs ship to NO, and 30 of 300 good ones; all failing ones are above 1000."""
    failing = [{"to": "NO" if n < 20 else "DE", "amount": 1500 + n, "sku": n % 2} for n in range(25)]
    good = [{"to": "NO" if n < 30 else "DE", "amount": n, "sku": n % 2, "ref": "r"} for n in range(300)]
    found = {mark.path: mark for mark in marks(counted(failing), 25, counted(good), 300)}
    to = found["$.to"]
    assert (to.what, to.failing, to.failing_of, to.good, to.good_of) == ('= "NO"', 20, 25, 30, 300)
    assert to.support == 0.8
    assert to.lift == pytest.approx(0.8 / (50 / 325))
    assert (found["$.amount"].what, found["$.amount"].failing, found["$.amount"].good) == (">= 1000", 25, 0)
    assert (found["$.ref"].what, found["$.ref"].failing, found["$.ref"].good) == ("absent", 25, 0)
    assert "$.sku" not in found


def test_noise_is_not_sold() -> None:
    """Jobs that fail by a coin's toss, of thirty fields each: nothing is said of 20 samples."""
    dice = random.Random(3)
    for _ in range(20):
        jobs = [{f"f{n}": dice.randrange(5) for n in range(30)} for _ in range(200)]
        failing, good = jobs[:40], jobs[40:]
        assert marks(counted(failing), 40, counted(good), 160) == []

    # Nor where there is nothing to compare.
    assert marks(counted([{"a": 1}] * 50), 50, counted([]), 0) == []
    assert marks(counted([{"a": 1}, {"a": 1}]), 2, counted([{"a": 2}] * 500), 500) == [], "two are too few"
