"""Every statement against the schema and against the code that reads it."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Awaitable, Callable
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


@pytest.mark.parametrize("statement", EVERY, ids=str)
async def test_it_fits_the_schema(statement: Statement, connect: Callable[[], Awaitable[Session]]) -> None:
    db = await connect()
    prepared = await db.prepare(statement.text)
    assert len(prepared.get_parameters()) == len(statement.parameters), "a parameter is left out of the numbering"


@pytest.mark.parametrize("statement", EVERY, ids=str)
def test_its_header_names_every_parameter(statement: Statement) -> None:
    assert len(statement.header) > 20
    told = {int(number) for number in statements.CALL.findall(statement.header)}
    assert statement.parameters <= told


def test_the_files_are_those_that_some_module_loads() -> None:
    assert {str(statement) for statement in EVERY} == statements.loaded()


async def test_a_claim_answers_what_a_job_is_made_of(connect: Callable[[], Awaitable[Session]]) -> None:
    """consumer.claim hands the columns from seq on to Job in their order, the lease behind the first and `created`
    in ms; then `more`, the lane's tenant and priority, and what `rare` has."""
    columns = await _columns(await connect(), "claim")
    assert columns[:5] == [("kind", str), ("lane", int), ("due", bool), ("place", int), ("slot", int)]
    made = [pair for pair in _fields(Job) if pair[0] != "lease"]
    names = [name for name, _ in made]
    common = names.index("more")
    assert columns[5:-2] == [("created", float) if pair == ("created_ms", int) else pair for pair in made[:common]]
    assert [name for name, _ in columns[-2:]] == ["rare", "more"]
    [rare] = re.findall(r"THEN ROW\((j\.original_topic.*?)\) END AS rare", statements.named("claim").body)
    assert [name.strip().removeprefix("j.").replace("grp", "group") for name in rare.split(",")] == names[common + 3 :]


async def test_a_state_is_what_its_statement_answers(connect: Callable[[], Awaitable[Session]]) -> None:
    assert set(await _columns(await connect(), "state")) == set(_fields(QueueState))


async def test_counts_are_what_their_statement_answers(connect: Callable[[], Awaitable[Session]]) -> None:
    columns = dict(await _columns(await connect(), "count"))
    assert columns.items() == set(_fields(Counts))


async def test_probes_and_lanes_are_what_their_statements_answer(connect: Callable[[], Awaitable[Session]]) -> None:
    db = await connect()
    assert await _columns(db, "probe") == [("topic", str), *_fields(Probe)]
    assert await _columns(db, "lanes") == _fields(Lane)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("ack", {"done", "picked", "deliveries", "ages", "tenants"}),
        ("ack_and_record", {"done", "picked", "deliveries", "ages", "tenants"}),
        ("nack", {"done", "picked", "refunded", "delays", "spent", "leases", "cancelled", "keyed"}),
        ("nack_keyed", {"done", "superseded", "refunded", "delays"}),
        ("extend", {"done", "picked", "deadlines", "cancelled"}),
        ("held", {"held"}),
        ("leases", {"ord", "lease_id", "cancelled", "until_ms"}),
        ("bury", {"done", "suspects"}),
        ("fail", {"done", "suspects"}),
        ("expire", {"expired", "cancelled", "suspects"}),
        ("cancel_jobs", {"gone", "marked", "ready", "picked"}),
        ("change_job", {"status", "changed", "was", "ready", "due"}),
        ("spent", {"ord", "tid", "tag", "producer", "metadata", "payload", "content_type", "suspect"}),
        ("exhausted", {"seq"}),
        ("enqueue", {"seqs"}),
        ("draws", {"topic_id", "drawn", "tally", "at"}),
        ("writers", {"writers"}),
        ("heads", {"ready", "due", "waited_ms"}),
        ("turns", {"ord", "next", "due", "more"}),
    ],
)
async def test_a_verb_answers_what_it_says(
    name: str, columns: set[str], connect: Callable[[], Awaitable[Session]]
) -> None:
    db = await connect()
    prepared = await db.prepare(statements.named(name).text)
    assert {column.name for column in prepared.get_attributes()} == columns


async def test_a_batch_is_what_an_enqueue_takes(connect: Callable[[], Awaitable[Session]]) -> None:
    """producer.enqueue hands the batch's columns over in their order, after topic, id and sequence."""
    db = await connect()
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


async def test_what_was_placed_is_what_those_enqueues_answer(connect: Callable[[], Awaitable[Session]]) -> None:
    """With keys the first of its fields, with dedupe ids all of them; and the parameters begin alike."""
    db = await connect()
    keyed, deduped = [await db.prepare(statements.named(name).text) for name in ("enqueue_keyed", "enqueue_deduped")]
    placed = [field.name for field in msgspec.structs.fields(Placement)]
    assert [column.name for column in deduped.get_attributes()] == placed
    assert [column.name for column in keyed.get_attributes()] == placed[:-2]
    of_keyed = [parameter.name for parameter in keyed.get_parameters()]
    assert [parameter.name for parameter in deduped.get_parameters()][: len(of_keyed)] == of_keyed


@pytest.mark.parametrize("name", ["get", "page"])
async def test_a_topics_row_has_every_setting(name: str, connect: Callable[[], Awaitable[Session]]) -> None:
    db = await connect()
    statement = next(s for s in EVERY if str(s) == f"topics/{name}")
    prepared = await db.prepare(statement.text)
    assert {*FIELDS, "name", "id", "sequence", "version"} <= {a.name for a in prepared.get_attributes()}


@pytest.mark.parametrize("statement", EVERY, ids=str)
def test_no_limit_is_left_to_a_subselect(statement: Statement) -> None:
    """`IN (SELECT … LIMIT … SKIP LOCKED)` may run its sub-select once a row, and lease the whole backlog at once."""
    assert _locking_subselects(statement.body) == []
    if "SKIP LOCKED" in statement.body:
        seats = r"cardinality\(\$9::uuid\[\]\)"
        bounded = rf"LIMIT (?:\$\d+::integer|{seats}|coalesce\(l\.most_due, {seats}\)|1) FOR UPDATE SKIP LOCKED"
        locked = statement.body.count("SKIP LOCKED")
        assert locked == len(re.findall(bounded, statement.body)), "lock and limit belong to one level"
        assert "MATERIALIZED" in statement.body


def test_nor_in_a_function() -> None:
    text = (statements.ROOT / "docs/schema.sql").read_text()
    assert "SKIP LOCKED" in text
    assert _locking_subselects(" ".join(re.sub(r"--.*", "", text).split())) == []


def test_a_subselect_that_locks_is_seen() -> None:
    inner = "SELECT seq FROM holdfast.jobs j WHERE (j.at < now()) LIMIT $1 FOR UPDATE SKIP LOCKED"
    assert _locking_subselects(f"DELETE FROM holdfast.jobs WHERE seq IN ({inner})") == [inner]
    assert _locking_subselects(f"DELETE FROM holdfast.jobs WHERE (topic, seq) NOT IN  ( {inner})") == [inner]
    assert _locking_subselects(f"WITH x AS MATERIALIZED ({inner}) SELECT 1 WHERE 1 IN (SELECT 1)") == []


@pytest.mark.parametrize("statement", EVERY, ids=str)
def test_no_clock_that_an_index_cannot_serve_decides(statement: Statement) -> None:
    """now() in a condition, since it is one value a statement; clock_timestamp() in what is written."""
    conditions = [_scope(statement.body, found.end()) for found in re.finditer(r"\bWHERE\b", statement.body)]
    ends = re.compile(r"\b(?:RETURNING|ORDER BY|GROUP BY|LIMIT|ON CONFLICT)\b")
    assert not [condition for condition in conditions if "clock_timestamp" in ends.split(condition)[0]]


@pytest.mark.parametrize("statement", EVERY, ids=str)
def test_it_can_be_routed_by_its_topic(statement: Statement) -> None:
    """Every look at the jobs names one topic, or a place in the table that a look with a topic has found."""
    if statement.name in {"find_letters", "find_out", "canary"} or statement.package in {"topics", "upkeep"}:
        return  # they look for the topic, or for topics that have something to sweep
    for condition in _conditions_on_jobs(statement.body):
        by_topic = re.search(r"\bj\.topic = (\$1\b|l\.topic\b|t\.topic\b)", condition)
        by_place = re.search(r"\bj\.ctid = [a-z]\.tid\b", condition)
        assert by_topic or by_place, condition


def test_every_kind_of_look_at_the_jobs_is_seen_by_the_test_above() -> None:
    for statement in EVERY:
        mentions = len(
            re.findall(
                r"\bjobs\b(?! AS)", statement.body.replace("FROM jobs", "").replace("'holdfast.jobs'::regclass", "")
            )
        )
        inserts = statement.body.count("INSERT INTO holdfast.jobs")
        assert mentions == inserts + len(_conditions_on_jobs(statement.body)), statement
    body = "SELECT 1 FROM (SELECT 1 FROM holdfast.jobs j WHERE j.seq = $2 LIMIT 1) x"
    assert _conditions_on_jobs(body) == ["j.seq = $2 LIMIT 1"]


@pytest.mark.parametrize("statement", [s for s in EVERY if MUTATES.search(s.body)], ids=str)
def test_what_changes_a_job_is_in_the_ledger(statement: Statement) -> None:
    if statement.name == "hook":
        return  # it is a part of an enqueue, whose event is there
    changes = re.search(r"(INSERT INTO|UPDATE|DELETE FROM) holdfast\.jobs\b", statement.body)
    assert (changes is not None) == ("INSERT INTO holdfast.lease_events" in statement.body)


async def test_nothing_hot_has_a_foreign_key(connect: Callable[[], Awaitable[Session]]) -> None:
    """Its check would lock rows FOR KEY SHARE, and a claim would skip them."""
    db = await connect()
    keys = await db.fetchval(
        """
        SELECT count(*) FROM pg_constraint
        WHERE contype = 'f' AND 'holdfast'::regnamespace IN (
            SELECT relnamespace FROM pg_class WHERE oid IN (conrelid, confrelid))
        """
    )
    assert keys == 0


def _conditions_on_jobs(body: str) -> list[str]:
    """What follows each mention of the jobs table, from its WHERE to the end of that sub-select."""
    mentions = re.finditer(r"(?:FROM|JOIN|UPDATE|USING) holdfast\.jobs\b", body)
    return [_scope(body, mention.end()).partition(" WHERE ")[2] for mention in mentions]


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


async def _columns(db: Session, name: str) -> list[tuple[str, type]]:
    prepared = await db.prepare(statements.named(name).text)
    return [(column.name, PYTHON[column.type.name]) for column in prepared.get_attributes()]


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
