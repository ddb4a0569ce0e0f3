"""The kept corpus, and some hundred inputs more that Hypothesis makes, through every target."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tools.fuzz.targets import TARGETS, seeds

CORPUS = Path(__file__).parents[2] / "tools/fuzz/corpus"
MOST_BYTES = 50_000  # of the whole corpus, which stays small
# What parsers meet: their own signs, the ends of texts and numbers, and what looks like another encoding.
PIECES = st.sampled_from(
    (
        *(
            b'"',
            b"\\",
            b":",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b"\0",
            b"\\u0000",
            b"\r",
            b"\n",
            b"\r\n",
            b"data: x\n\n",
            b"$",
        ),
        *(
            b".",
            b"lease_",
            b"wid_",
            b"tenant:",
            b'key:"',
            b"older:1h",
            b"=",
            b"%00",
            b"%2f",
            b"\xff\xfe",
            b"\xed\xa0\x80",
        ),
        *(
            b"@",
            b"9" * 40,
            b"-1",
            b"1e999",
            b"NaN",
            b"null",
            b"c x y",
            b"w x 1 1",
            b"--b\r\n",
            b"http://",
            b"localhost",
        ),
    )
)
INPUT = st.binary(max_size=64) | st.lists(PIECES | st.binary(max_size=4), max_size=12).map(b"".join)


@pytest.mark.parametrize("target", TARGETS)
def test_what_was_once_found_is_read(target: str) -> None:
    assert seeds(target)
    for seed in seeds(target):
        TARGETS[target](seed)


@pytest.mark.parametrize("target", TARGETS)
def test_any_bytes_are_read_or_refused(target: str) -> None:
    @settings(max_examples=200, derandomize=True, database=None)
    @given(INPUT)
    @example(b"")
    def holds(data: bytes) -> None:
        TARGETS[target](data)

    holds()


def test_the_corpus_is_of_targets_and_small() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < MOST_BYTES


def test_a_target_that_lets_an_error_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a frame whose payload keeps its line ends, as it was before one_line."""
    monkeypatch.setattr("tools.fuzz.targets.one_line", lambda data: data)
    with pytest.raises(AssertionError):
        TARGETS["sse_frames"](b'{"a":\n\n"event: evil"}')
