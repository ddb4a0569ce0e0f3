"""Every statement against the schema and against the code that reads it."""

from __future__ import annotations

import re
import types
import typing
from datetime import datetime

import asyncpg
import msgspec
import pytest

from app.kernel.counts.inspector import Counts, Probe, QueueState
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Job, Lane
from app.kernel.topics.settings import FIELDS
from tests.queue import statements
from tests.queue.calls import Session
from tests.queue.statements import Statement

EVERY = statements.every()
APART = {"keys", "groups", "dedupe_ids", "webhooks"}  # of what is placed singly, or was there before
MUTATES = re.compile(r"\b(UPDATE|DELETE|INSERT)\b")

# PostgreSQL's types, as asyncpg hands them over.
PYTHON = {
    "int2": int,
    "int4": int,
    "int8": int,
    "float8": float,
    "oid": int,
    "text": str,
    "json": str,
    "bytea": bytes,
    "bool": bool,
    "timestamptz": datetime,
    "record": asyncpg.Record,
}


async def test_each_fits_the_schema_and_its_header_names_every_parameter(db: Session) -> None:
    for statement in EVERY:
        prepared = await db.prepare(statement.text)
        assert len(prepared.get_parameters()) == len(statement.parameters), f"{statement} leaves out a number"
        assert len(statement.header) > 20, statement
        named = {int(number) for number in statements.CALL.findall(statement.header)}
        for first, last in re.findall(r"\$(\d+) to \$(\d+)", statement.header):
            named |= {*range(int(first), int(last))}
        assert statement.parameters <= named, statement


def test_the_files_are_those_that_some_module_loads() -> None:
    assert {str(statement) for statement in EVERY} == statements.loaded()


async def test_a_claim_answers_what_a_job_is_made_of(db: Session) -> None:
    """consumer.claim hands the columns from seq on to Job in their order, the lease behind the first and `created`
    in ms; then `more`, the lane's tenant and priority, and what `rare` has."""
    columns = await _columns(db, "claim")
    assert columns[:5] == [("kind", str), ("lane", int), ("due", bool), ("place", int), ("slot", int)]
    made = [pair for pair in _fields(Job) if pair[0] != "lease"]
    names = [name for name, _ in made]
    common = names.index("more")
    assert columns[5:-2] == [("created", float) if pair == ("created_ms", int) else pair for pair in made[:common]]
    assert [name for name, _ in columns[-2:]] == ["rare", "more"]
    [rare] = re.findall(r"THEN ROW\((j\.original_topic.*?)\) END AS rare", statements.named("claim").body)
    assert [name.strip().removeprefix("j.").replace("grp", "group") for name in rare.split(",")] == names[common + 3 :]


async def test_what_is_made_of_rows_is_what_their_statements_answer(db: Session) -> None:
    assert set(await _columns(db, "state")) == set(_fields(QueueState))
    assert set(await _columns(db, "count")) == set(_fields(Counts))
    assert await _columns(db, "probe") == [("topic", str), *_fields(Probe)]
    assert await _columns(db, "lanes") == _fields(Lane)
    for name in ("get", "page"):
        columns = {name for name, _ in await _columns(db, name, "topics")}
        assert columns >= {*FIELDS, "name", "id", "sequence", "version"}


async def test_a_batch_is_what_an_enqueue_takes(db: Session) -> None:
    """producer.enqueue hands the batch's columns over in their order, after topic, id and sequence."""
    prepared = await db.prepare(statements.named("enqueue").text)
    taken = [PYTHON[parameter.name.removesuffix("[]")] for parameter in prepared.get_parameters()[3:-1]]
    hints = typing.get_type_hints(Batch)
    made_of = [
        _plain(typing.get_args(hints[field.name])[0])
        for field in msgspec.structs.fields(Batch)
        if field.name not in APART
    ]
    assert taken == made_of
    keyed = await db.prepare(statements.named("enqueue_keyed").text)
    assert [parameter.name for parameter in keyed.get_parameters()][: len(taken) + 4] == [
        *(parameter.name for parameter in prepared.get_parameters()[:-1]),
        "text[]",
    ]


async def test_what_was_placed_is_what_those_enqueues_answer(db: Session) -> None:
    """With keys the first of its fields, with dedupe ids all of them; and the parameters begin alike."""
    keyed, deduped = [await db.prepare(statements.named(name).text) for name in ("enqueue_keyed", "enqueue_deduped")]
    placed = [field.name for field in msgspec.structs.fields(Placement)]
    assert [column.name for column in deduped.get_attributes()] == placed
    assert [column.name for column in keyed.get_attributes()] == placed[:-2]
    of_keyed = [parameter.name for parameter in keyed.get_parameters()]
    assert [parameter.name for parameter in deduped.get_parameters()][: len(of_keyed)] == of_keyed


@pytest.mark.parametrize("statement", [s for s in EVERY if "SKIP LOCKED" in s.body], ids=str)
def test_no_limit_is_left_to_a_subselect(statement: Statement) -> None:
    """`IN (SELECT … LIMIT … SKIP LOCKED)` may run its sub-select once a row, and lease the whole backlog at once."""
    assert _locking_subselects(statement.body) == []
    seats = r"cardinality\(\$9::uuid\[\]\)"
    bounded = rf"LIMIT (?:\$\d+::integer|{seats}|coalesce\(l\.most_due, {seats}\)|1) FOR UPDATE SKIP LOCKED"
    locked = statement.body.count("SKIP LOCKED")
    assert locked == len(re.findall(bounded, statement.body)), "lock and limit belong to one level"
    assert "MATERIALIZED" in statement.body


def test_nor_in_a_function() -> None:
    text = (statements.ROOT / "docs/schema.sql").read_text()
    assert "SKIP LOCKED" in text
    assert _locking_subselects(" ".join(re.sub(r"--.*", "", text).split())) == []


def test_no_clock_that_an_index_cannot_serve_decides() -> None:
    """now() in a condition, since it is one value a statement; clock_timestamp() in what is written."""
    ends = re.compile(r"\b(?:RETURNING|ORDER BY|GROUP BY|LIMIT|ON CONFLICT)\b")
    for statement in EVERY:
        conditions = [_scope(statement.body, found.end()) for found in re.finditer(r"\bWHERE\b", statement.body)]
        assert not [one for one in conditions if "clock_timestamp" in ends.split(one)[0]], statement


def test_what_changes_a_job_is_in_the_ledger() -> None:
    for statement in EVERY:
        if statement.name == "hook" or not MUTATES.search(statement.body):
            continue  # a hook is a part of an enqueue, whose event is there
        changes = re.search(r"(INSERT INTO|UPDATE|DELETE FROM) holdfast\.jobs\b", statement.body)
        assert (changes is not None) == ("INSERT INTO holdfast.lease_events" in statement.body), statement


async def test_nothing_hot_has_a_foreign_key(db: Session) -> None:
    """Its check would lock rows FOR KEY SHARE, and a claim would skip them."""
    keys = await db.fetchval(
        """
        SELECT count(*) FROM pg_constraint
        WHERE contype = 'f' AND 'holdfast'::regnamespace IN (
            SELECT relnamespace FROM pg_class WHERE oid IN (conrelid, confrelid))
        """
    )
    assert keys == 0


def _locking_subselects(body: str) -> list[str]:
    """The sub-selects of IN that lock."""
    found = [_scope(body, one.end()) for one in re.finditer(r"\bIN\s*\(\s*(?=SELECT\b)", body, re.IGNORECASE)]
    return [one for one in found if "SKIP LOCKED" in one.upper()]


def _scope(body: str, start: int) -> str:
    """The text from `start` to the bracket that closes what it stands in."""
    depth = 0
    for place, letter in enumerate(body[start:], start):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return body[start:place]
    return body[start:]


async def _columns(db: Session, name: str, package: str | None = None) -> list[tuple[str, type]]:
    prepared = await db.prepare(statements.named(name, package).text)
    return [(column.name, PYTHON.get(column.type.name, object)) for column in prepared.get_attributes()]


def _fields(of: type) -> list[tuple[str, type]]:
    hints = typing.get_type_hints(of)
    names = [field.name for field in msgspec.structs.fields(of)] if issubclass(of, msgspec.Struct) else list(hints)
    return [(name, _plain(hints[name])) for name in names]


def _plain(hint: object) -> type:
    """A hint without its None, and a NewType as what it is."""
    if isinstance(hint, types.UnionType):
        hint = next(part for part in hint.__args__ if part is not type(None))
    if isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    assert isinstance(hint, type)
    return hint
