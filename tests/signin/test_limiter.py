"""Ten tries a minute for each address."""

from __future__ import annotations

import pytest

from app.signin import limiter
from app.signin.limiter import Limiter, TooManyTries


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_eleventh_within_a_minute_is_too_many() -> None:
    clock = Clock()
    tries = Limiter(clock=clock)
    for _ in range(10):
        tries.take("10.0.0.1")
        clock.now += 1
    with pytest.raises(TooManyTries) as error:
        tries.take("10.0.0.1")
    assert error.value.detail == {"limit": "sign_in_tries", "max": 10}
    tries.take("10.0.0.2")
    clock.now = 60.0  # the first is a minute ago
    tries.take("10.0.0.1")
    with pytest.raises(TooManyTries):
        tries.take("10.0.0.1")


def test_what_is_given_back_does_not_count() -> None:
    tries = Limiter()
    for _ in range(100):
        tries.take("a")
        tries.give_back("a")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8:0:0::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_what_counts_as_one_address(one: str, other: str, same: bool) -> None:
    tries = Limiter()
    for _ in range(10):
        tries.take(one)
    if same:
        with pytest.raises(TooManyTries):
            tries.take(other)
    else:
        tries.take(other)


def test_it_keeps_a_bounded_number_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "MOST_ADDRESSES", 3)
    tries = Limiter()
    for n in range(5):
        tries.take(f"a{n}")
    assert list(tries._tries) == ["a2", "a3", "a4"]
