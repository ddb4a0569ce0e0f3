"""Payloads as pages show them: nothing of JSON is changed, and anything at all can be shown."""

from __future__ import annotations

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st

from app.features.jobs import job_parts
from app.features.jobs.job_parts import DEEPEST, MOST_BYTES, MOST_CHARACTERS, MOST_LINES, Line, LineKind

NUMBERS = st.sampled_from(["0", "-0", "1E400", "0.10", "123456789012345678901234567890", "1e-7", "-1.50"])
TEXTS = st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=len(text) % 2 == 0))
SPACE = st.sampled_from(["", " ", "\n\t"])
VALUES = st.recursive(
    NUMBERS | TEXTS | st.sampled_from(["true", "false", "null", "{}", "[]", "[ ]", '"{[:,]}"', '"\\"{"']),
    lambda inner: (
        st.tuples(SPACE, st.lists(inner, max_size=4)).map(
            lambda made: f"[{made[0]}" + f",{made[0]}".join(made[1]) + "]"
        )
        | st.tuples(SPACE, st.lists(st.tuples(TEXTS, inner), max_size=4)).map(
            lambda made: "{" + ",".join(f"{made[0]}{name}{made[0]}:{value}" for name, value in made[1]) + "}"
        )
    ),
    max_leaves=25,
)


def tokens(text: str) -> list[str]:
    """By other means than the code's: what is between strings, without its white space, and strings."""
    parts = re.split(r'("(?:\\.|[^"\\])*")', text)
    return [part if at % 2 else "".join(part.split()) for at, part in enumerate(parts)]


def written(lines: list[Line]) -> str:
    """As they stand on the page."""
    return "\n".join(f"{line.name and line.name + ': '}{line.text}{',' * line.comma}" for line in lines)


@given(VALUES)
@example('{"a":1,"a":2,"n":12345678901234567890.10,"a":{"a":[]}}')
def test_no_token_of_json_is_changed(text: str) -> None:
    lines = list(job_parts.lines_of(text))
    assert tokens(written(lines)) == tokens(text)
    opened = [line.kind for line in lines]
    assert opened.count(LineKind.OPENS) == opened.count(LineKind.CLOSES)
    shown = job_parts.view_payload(text.encode(), None)
    assert (written(shown.lines), shown.cut, shown.wrong) == (written(lines), False, False)


@given(st.binary(max_size=200), st.sampled_from([None, "text/plain", "application/json", "image/png"]))
@example(b'{"a":\xff}', None)
@example(b'{"a": tru}', None)
@example(b"\x00\x1b[31mred\r\n\x7f", "text/plain")
def test_anything_can_be_shown(payload: bytes, content_type: str | None) -> None:
    shown = job_parts.view_payload(payload, content_type)
    assert shown.size == len(payload)
    assert not shown.cut
    assert bool(shown.lines or shown.text) is bool(payload)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", shown.text)
    if shown.is_hex:
        assert bytes.fromhex("".join(row[10:57] for row in shown.text.splitlines())) == payload
    if content_type == "image/png":
        assert (shown.is_hex, shown.wrong) == (True, False)


def test_what_is_wrong_is_said() -> None:
    said = [
        job_parts.view_payload(b'{"a":', None),
        job_parts.view_payload(b"\xff", "text/plain"),
        job_parts.view_payload(b"\xff", None),
    ]
    assert [(one.wrong, one.is_hex) for one in said] == [(True, False), (True, True), (True, True)]
    assert said[0].text == '{"a":'


def test_much_is_cut_and_says_so() -> None:
    many = job_parts.view_payload(json.dumps([{"n": n} for n in range(MOST_LINES)]).encode(), None)
    assert many.cut
    assert len(many.lines) <= MOST_LINES + 2
    assert sum(line.kind is LineKind.OPENS for line in many.lines) == sum(
        line.kind is LineKind.CLOSES for line in many.lines
    )
    assert [line.folded for line in many.lines[:2]] == [False, True]
    long = job_parts.view_payload(b'["' + b"x" * 1_000_000 + b'", 2]', None)
    assert long.cut
    assert len("[" + long.lines[1].text) == MOST_CHARACTERS + len("…")
    deep = job_parts.view_payload(b"[" * 400 + b"]" * 400, None)
    assert deep.cut
    assert len(deep.lines) == 2 * (DEEPEST + 1)
    text = job_parts.view_payload(b"x" * 1_000_000, "text/plain")
    assert (len(text.text), text.cut) == (MOST_CHARACTERS, True)
    raw = job_parts.view_payload(bytes(1_000_000), "image/png")
    assert (len(raw.text.splitlines()), raw.cut) == (MOST_BYTES // 16, True)
