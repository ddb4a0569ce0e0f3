"""Two payloads beside each other."""

from __future__ import annotations

import random

from app.features.dead_letters.jobs_page import MOST_BYTES, MOST_LINES, pairs, text_of


def test_json_is_indented_and_its_numbers_stay_as_they_were_written() -> None:
    assert text_of(b'{"a":1.10,"b":[12345678901234567890]}', None).lines == [
        "{",
        '  "a": 1.10,',
        '  "b": [',
        "    12345678901234567890",
        "  ]",
        "}",
    ]


def test_text_is_text_and_anything_else_hex() -> None:
    assert text_of("käse\r\nbrot".encode(), "text/plain").lines == ["käse", "brot"]
    assert text_of(b"\xff\x00" * 9, "application/octet-stream").lines == ["ff 00 " * 7 + "ff 00", "ff 00"]
    assert text_of(b"\xff", "text/plain").lines == ["ff"]
    assert text_of(b"{", None).lines == ["{"]  # as no intake lets in


def test_lines_that_are_the_same_stand_beside_each_other() -> None:
    found = pairs(["a", "b", "c"], ["a", "x", "y", "c"])
    assert [(one.left, one.right, one.differs) for one in found] == [
        ("a", "a", False),
        ("b", "x", True),
        (None, "y", True),
        ("c", "c", False),
    ]
    assert not any(one.differs for one in pairs(["a", "a"], ["a", "a"]))


def test_what_is_long_is_cut_and_what_is_worst_is_done_soon() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    for payload in (b'"%b"' % (b"x" * (MOST_BYTES + 1)), b"[%b]" % b",".join([b"1"] * 2 * MOST_LINES), deep):
        text = text_of(payload, None)
        assert text.cut
        assert len(text.lines) <= MOST_LINES
    chance = random.Random(1)
    either = [[chance.choice("xy") for _ in range(MOST_LINES)] for _ in range(2)]
    alike, sparse = ["x"] * 199, [one for n in range(100) for one in ("x", str(n))][:199]
    for left, right in ((either[0], either[1]), (alike, sparse)):
        assert len(pairs(left, right)) <= len(left) + len(right)
