"""What errors of one kind have in common: whatever differs from one to the next is blanked, and nothing else is."""

from __future__ import annotations

import ipaddress
import random
import string
import uuid
from collections.abc import Callable

import pytest

from tests.queue.calls import Session

WORDS = "ghijklmnopqrstuvwxyz"  # of letters that no number has
TYPES = [
    "",
    "ValueError",
    "requests.exceptions.ConnectionError",
    "urllib3.exceptions.MaxRetryError",
    "psycopg2.OperationalError",
    "java.lang.IllegalStateException",
    "System.IO.IOException",
    "Worker.Crashed",
]

Random = random.Random


def _text(r: Random, without: str) -> str:
    letters = [c for c in string.ascii_letters + string.digits + " .,:;/()[]{}<>=_-+äß漢🙂'\"`" if c not in without]
    return "".join(r.choices(letters, k=r.randint(0, 30)))


def _word(r: Random, least: int = 4) -> str:
    return "".join(r.choices(WORDS, k=r.randint(least, 9)))


def _identifier(r: Random) -> str:
    letters = string.ascii_letters + string.digits
    return "ord_" + "".join(r.choices(letters, k=r.randint(3, 14))) + str(r.randint(0, 9))


def _cased(r: Random, text: str) -> str:
    return r.choice([text, text.upper(), text.replace("-", "")])


# Each makes another value of one kind.
VALUES: dict[str, Callable[[Random], str]] = {
    "integer": lambda r: str(r.randint(-(10 ** r.randint(1, 12)), 10 ** r.randint(1, 12))),
    "decimal": lambda r: f"{r.uniform(-1e6, 1e6):.{r.randint(1, 9)}f}",
    "exponent": lambda r: f"{r.uniform(-10, 10) * 10.0 ** r.randint(-200, 200):e}",
    "thousands": lambda r: f"{r.randint(0, 10 ** r.randint(1, 12)):,}",
    "duration": lambda r: r.choice(["1.5s", "300ms", "2m30s", "45.2s", "1h0m0s"]),
    "uuid": lambda r: _cased(r, str(uuid.UUID(int=r.getrandbits(128)))),
    "hex": lambda r: f"{r.getrandbits(4 * r.randint(8, 64)):08x}",
    "address": lambda r: f"0x{r.getrandbits(48):x}",
    "identifier": _identifier,
    "double quotes": lambda r: f'"{_text(r, chr(34))}"',
    "escaped quotes": lambda r: r'"{\"' + _word(r) + r"\": \"" + _text(r, '"`') + r'\"}"',
    "single quotes": lambda r: f"'{_text(r, chr(39))}'",
    "an apostrophe in quotes": lambda r: f"'{_word(r)}'{_word(r)}'",
    "a bytes literal": lambda r: f"b'{_text(r, chr(39))}'",
    "backticks": lambda r: f"`{_text(r, '`')}`",
    "typographic quotes": lambda r: r.choice(["“{}”", "„{}“", "«{}»"]).format(_text(r, "“”„«»")),
    "ipv4": lambda r: str(ipaddress.IPv4Address(r.getrandbits(32))) + r.choice(["", f":{r.randint(1, 65535)}"]),
    "ipv6": lambda r: str(ipaddress.IPv6Address(r.getrandbits(r.choice([16, 32, 128])))),
    "mac": lambda r: ":".join(f"{r.getrandbits(8):02x}" for _ in range(6)),
    "url": lambda r: f"https://{_word(r)}.example/{_word(r)}/{r.randint(1, 99)}?q={_word(r)}&n={r.random()}",
    "dsn": lambda r: f"postgresql://{_word(r)}:{_word(r)}@{_word(r)}/{_word(r)}",
    "mail": lambda r: f"{_word(r)}.{_word(r)}@{_word(r)}.example",
    "path": lambda r: "/" + "/".join(_word(r) for _ in range(r.randint(1, 5))) + r.choice(["", ".txt", "-1.gz"]),
    "windows path": lambda r: "C:\\" + "\\".join(_word(r) for _ in range(r.randint(1, 5))),
    "relative path": lambda r: "/".join(_word(r) for _ in range(r.randint(2, 5))) + ".py",
    "home": lambda r: f"~/{_word(r)}/{_word(r)}",
    "timestamp": lambda r: (
        f"2{r.randint(0, 999):03}-{r.randint(1, 12):02}-{r.randint(1, 28):02}{r.choice('T ')}"
        f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}{r.choice(['', '.123', 'Z', '+02:00'])}"
    ),
    "date": lambda r: (
        f"{r.choice(['Mon', 'Thu'])} {r.choice(['Jan', 'Oct', 'May'])} {r.randint(1, 28)} "
        f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02} {r.randint(1990, 2090)}"
    ),
    "list": lambda r: str([r.randint(-99, 99) for _ in range(r.randint(1, 9))]),
    "list of names": lambda r: str([_word(r) for _ in range(r.randint(1, 9))]),
    "pairs": lambda r: str([(r.randint(0, 9), _word(r)) for _ in range(r.randint(1, 5))]),
    "object": lambda r: str({_word(r): r.randint(0, 9) for _ in range(r.randint(1, 5))}),
}


def _template(r: Random) -> tuple[list[str], list[str]]:
    """Words, and what stands between them."""
    words = [_word(r) for _ in range(r.randint(2, 6))]
    kinds = [r.choice(sorted(VALUES)) for _ in words[1:]]
    kind = r.choice(TYPES)
    return [f"{kind}: {words[0]}" if kind else words[0], *words[1:]], kinds


def _filled(r: Random, words: list[str], kinds: list[str]) -> str:
    text = words[0]
    for word, kind in zip(words[1:], kinds, strict=True):
        text += f" {VALUES[kind](r)} {word}"
    return text


async def titles(db: Session, errors: list[str | None]) -> list[str | None]:
    rows = await db.fetch(
        "SELECT holdfast.error_title(e.text) AS title FROM unnest($1::text[]) WITH ORDINALITY AS e(text, n) ORDER BY n",
        errors,
    )
    return [row["title"] for row in rows]


@pytest.mark.parametrize("kind", sorted(VALUES))
async def test_values_of_a_kind_never_split_a_cluster(kind: str, db: Session) -> None:
    r = Random(kind)
    errors: list[str | None] = []
    for before, after in [("", ""), ("(", ")"), ("[", "]"), ("=", ""), ("", ","), ("", ":")]:
        start = "OSError: thing went wrong" + ("" if before == "=" else " ")
        errors = [f"{start}{before}{VALUES[kind](r)}{after} in this place" for _ in range(50)]
        found = await titles(db, errors)
        assert len(set(found)) == 1, (kind, dict(zip(found, errors, strict=True)))
        assert found[0] is not None
        assert found[0].startswith("OSError: thing went wrong")
        assert found[0].endswith("in this place")


@pytest.mark.parametrize("seed", range(2))
async def test_texts_of_a_template_are_one_cluster_and_those_of_two_are_two(seed: int, db: Session) -> None:
    r = Random(seed)
    templates = [_template(r) for _ in range(200)]
    errors: list[str | None] = [_filled(r, *template) for template in templates for _ in range(10)]
    found = await titles(db, errors)
    by_template = [set(found[10 * i : 10 * i + 10]) for i in range(200)]
    assert [one for one in by_template if len(one) != 1] == []
    seen = [(template[0], one.pop()) for template, one in zip(templates, by_template, strict=True)]
    assert len({title for _, title in seen}) == len({tuple(words) for words, _ in seen})


PYTHON = """Traceback (most recent call last):
  File "/app/worker.py", line 17, in run
    handle(job)
    ~~~~~~^^^^^
  File "/app/handlers.py", line 40, in handle
    raise KeyError(name)
KeyError: 'user-17'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/app/worker.py", line 19, in run
    raise app.errors.HandlerFailed(f"no luck with {n}") from None
app.errors.HandlerFailed: no luck with 12
and a line more
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/app/t.py", line 3, in <module>
  |     raise ExceptionGroup("two of them", [ValueError(1), TypeError(2)])
  | ExceptionGroup: two of them (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: 1
"""
JAVA = """java.lang.IllegalStateException: no session 4711 for "kim"
\tat com.example.Sessions.find(Sessions.java:42)
Caused by: java.io.IOException: closed
"""


TITLES: list[tuple[str | None, str | None]] = [
    ("smtp: 421", "smtp: *"),
    ('{"code": "E17"}', "{*}"),
    ('{"code": "E4", "at": "b", "status": 402}', "{*}"),
    ('PaymentDeclined: {"code": "E17"}', "PaymentDeclined: {*}"),
    (
        "ValueError: invalid literal for int() with base 10: 'x'",
        "ValueError: invalid literal for int() with base *",
    ),
    ("can't open 'a b': it's not there, isn't it", "can't open *: it's not there, isn't it"),
    ("ConnectionError: no answer from 10.0.0.7:5432 within 30 s", "ConnectionError: no answer from * within * s"),
    ("urllib3.exceptions.MaxRetryError: 3 of 3", "urllib3.exceptions.MaxRetryError: * of *"),
    ("java.lang.ArithmeticException: / by zero", "java.lang.ArithmeticException: / by zero"),
    ("std::bad_alloc", "std::bad_alloc"),
    ("GET /users/42 and/or n/a", "GET * and/or n/a"),
    ("MemoryError", "MemoryError"),
    (PYTHON, "app.errors.HandlerFailed: no luck with *"),
    (PYTHON.replace("\n", "\r\n"), "app.errors.HandlerFailed: no luck with *"),
    (GROUP, "ExceptionGroup: two of them (* sub-exceptions)"),
    (JAVA, "java.lang.IllegalStateException: no session * for *"),
    ('Exception in thread "main" java.lang.Error: x\n\tat y', "Exception in thread * java.lang.Error: x"),
    (
        "thread 'main' panicked at src/main.rs:2:5:\nindex out of bounds",
        "thread * panicked at *: index out of bounds",
    ),
    ("panic: index out of range [5] with length 3\n\ngoroutine 1", "panic: index out of range [*] with length *"),
    ("\n\n  ValueError: x  \n", "ValueError: x"),
    ('ValueError: got "a line\nand another"', "ValueError: got *"),
    # Nothing of it writes a line of its own, moves a cursor or turns the text round.
    ("a\x1b[31mred\x1b[0m b\x07c\x00d".replace("\x00", ""), "ared b cd"),
    ("one\u2028two\u202ethree\u2066four\ufefffive\x85six", "one two three four five six"),
    ("x\rLog: forged", "x"),
    # Nothing is left of these.
    (None, None),
    ("", None),
    (" \t\r\n\x07", None),
    ("größte Datei fehlt: „Übersicht.pdf“", "größte Datei fehlt: *"),
    ("ファイル 17 が見つかりません", "ファイル * が見つかりません"),
    ("Traceback (most recent call last):", "Traceback (most recent call last):"),
]


async def test_a_title(db: Session) -> None:
    found = await titles(db, [error for error, _ in TITLES])
    assert found == [title for _, title in TITLES]


async def test_types_and_messages_are_told_apart(db: Session) -> None:
    errors: list[str | None] = [
        "KeyError: 'a'",
        "ValueError: 'a'",
        "errors.KeyError: 'a'",
        "psycopg2.OperationalError: no",
        "psycopg3.OperationalError: no",
        "attempt=3 failed",
        "port=3 failed",
        "code: 5 is bad",
        "status: 5 is bad",
        "connection refused",
        "connection reset",
        None,
    ]
    found = await titles(db, errors)
    assert len(set(found)) == len(errors), found


async def test_it_is_bounded_in_length_and_time(db: Session) -> None:
    """Texts of 8 KiB that are hard on patterns; a statement that takes seconds would be ended."""
    await db.execute("SET statement_timeout = '3s'")
    most = 8192
    hard = [
        "a" * most, "a-" * (most // 2), "'" * most, "'a" * (most // 2), '"\\' * (most // 2), "/" * most,
        "a:" * (most // 2), "1," * (most // 2), "(*" * (most // 2), "\n" * most, "x\n" * (most // 2), "[" * most,
        "Traceback (most recent call last)\n" + "a\n" * 4000, "漢" * 2730, "a." * (most // 2), "@." * (most // 2),
        "Traceback (most recent call last)\n" + '  File "\n' * 900, "." * most, "+" * most, "A/" * (most // 2),
    ]  # fmt: skip
    for text in hard:
        [title] = await titles(db, [text])
        assert title is None or len(title) <= 200, text[:20]
        assert title is None or "\n" not in title
    # What is quoted may be longer than what is looked at.
    quoted: list[str | None] = [f'ValueError: not JSON: "{"wort " * n}" in it' for n in (500, 700, 1500)]
    assert len(set(await titles(db, quoted))) == 1


async def test_a_clusters_id_is_the_same_everywhere(db: Session) -> None:
    """It is kept with jobs for weeks: whoever changes what is blanked changes ids, and must know it."""
    ids = [
        await db.fetchval("SELECT holdfast.error_cluster($1)", error)
        for error in ("smtp: 421", "smtp: 550", None, " ", "ValueError: x")
    ]
    assert ids == ["c9a991e6270365e7", "c9a991e6270365e7", "e3b0c44298fc1c14", "e3b0c44298fc1c14", "f36275d062859379"]
