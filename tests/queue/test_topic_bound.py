"""A statement stays with one topic: deploy/citus/README.md rests on it, and lists those that don't, with the reason.

Each is planned, and what its plan does to a table that has rows of topics is looked at: a scan has the topic among its
conditions, as a parameter, or goes to rows by the ctid that another scan of the same statement has found. What
functions do is not in a plan: those that touch such tables are on the page, too, and are told a topic. deploy/citus
divides every table of the schema as the page has it, and its keys allow it.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import asyncpg
import pytest

from tests.queue import statements
from tests.queue.calls import Session
from tests.queue.plans import Plan
from tests.queue.statements import ROOT, Statement

PAGE: Final = (ROOT / "deploy/citus/README.md").read_text()
ROW: Final = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \|", re.MULTILINE)
NAME: Final = re.compile(r"`([\w/]+)`")
# A condition on the topic: its name or id is a parameter, or `(InitPlan 1).col1`, which the statement looked up first.
BOUND: Final = re.compile(r"\btopic(_id)? = \(?(\$\d+|\(InitPlan \d+\)\.col\d+)")
FUNCTION: Final = re.compile(r"holdfast\.(\w+)\(")
TABLE: Final = re.compile(r"holdfast\.(\w+)\b(?!\()")
TOLD: Final = {"of_topic", "of_id", "of_topic_id"}  # how functions call the topic
ARRIVES: Final = re.compile(r"INSERT INTO holdfast\.(\w+) \(([^)]*)\) SELECT (?:DISTINCT )?(.*?) FROM")
PLANNER: Final = """
SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off;
SET enable_hashjoin = off; SET enable_mergejoin = off
"""
# What an enqueue, a claim and the end of a delivery run: none of it may ever be on the list.
HOT: Final = {
    *("enqueue", "enqueue_keyed", "enqueue_deduped", "add_lanes", "lanes", "depth", "take_tokens", "promote"),
    *("claim", "ack", "ack_and_record", "nack", "nack_keyed", "extend", "bury", "fail", "expire", "inter", "hook"),
    *("held", "leases", "spent", "exhausted", "in_flight", "turns", "working", "append_records", "read_records"),
}


def rows(mark: str) -> dict[str, str]:
    """The table behind a mark of the page: each name in its first column, and what the second says."""
    _, found, rest = PAGE.partition(f"<!-- {mark} -->\n\n")
    assert found, mark
    return {name: told.strip() for names, told in ROW.findall(rest.split("\n\n")[0]) for name in NAME.findall(names)}


SPREAD: Final = rows("spread")
CITUS: Final = ROOT / "deploy/citus"
TABLES: Final = """
SELECT relname FROM pg_class
WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
"""
NOT_BY_ID: Final = """
SELECT i.indexrelid::regclass::text FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid AND c.relnamespace = 'holdfast'::regnamespace AND c.relname = ANY ($1)
WHERE i.indisunique AND NOT EXISTS (
    SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'topic_id' AND a.attnum = ANY (i.indkey))
"""
WITHOUT: Final = """
SELECT name FROM unnest($1::text[]) AS name WHERE NOT EXISTS (
    SELECT 1 FROM pg_attribute WHERE attrelid = ('holdfast.' || name)::regclass AND attname = 'topic_id')
"""


@pytest.fixture(scope="module")
async def db(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[Session]:
    """A session on a schema of its own, that plans with no values known and walks indexes wherever it can."""
    db: Session = await asyncpg.connect(await new_database(), statement_cache_size=0)
    await db.execute(PLANNER)
    yield db
    await db.close()


async def test_a_statement_that_may_meet_another_topic_is_on_the_page(db: Session) -> None:
    found = await db.fetch("SELECT inhrelid::regclass::text, inhparent::regclass::text FROM pg_inherits")
    parents = {child.removeprefix("holdfast."): parent.removeprefix("holdfast.") for child, parent in found}
    assert {"jobs", "lease_events", "tallies"} <= SPREAD.keys()
    strays = {str(one): loose(await plan_of(db, one), parents) for one in statements.every()}
    listed = rows("not by one topic")
    hot = {str(statements.named(name)) for name in HOT}
    assert {name: scans for name, scans in strays.items() if scans and name not in listed} == {}
    assert sorted(name for name in listed if not strays[name]) == [], "on the page, and stays with its topic"
    assert listed.keys() & hot == set()
    assert hot <= strays.keys()


def test_a_statement_that_writes_to_a_second_topic_is_on_the_page() -> None:
    second = {str(one) for one in statements.every() if lands_elsewhere(one)}
    assert second == {name for name in rows("two topics") if "/" in name}


async def test_a_function_that_touches_rows_of_topics_is_on_the_page(db: Session) -> None:
    found = await db.fetch("""
        SELECT proname AS name, max(coalesce(prosrc, '')) AS body, array_agg(DISTINCT arg) AS told
        FROM pg_proc, unnest(coalesce(proargnames, '{}') || '-'::text) AS arg
        WHERE pronamespace = 'holdfast'::regnamespace GROUP BY proname
    """)
    bodies = {one["name"]: one["body"] for one in found}
    called = {name for one in statements.every() for name in FUNCTION.findall(one.body)}
    touching = {name for name in called & bodies.keys() if SPREAD.keys() & reached(name, bodies, set())}
    listed = rows("functions")
    assert touching == listed.keys()
    told = {one["name"] for one in found if TOLD & set(one["told"])}
    assert touching - told == {name for name in listed if listed[name].startswith("all topics")}


async def test_each_table_is_in_one_place(new_database: Callable[[], Awaitable[str]]) -> None:
    divided = listed("spread"), listed("reference"), listed("local")
    db = await asyncpg.connect(await new_database())
    try:
        tables = [row["relname"] for row in await db.fetch(TABLES)]
        assert sorted(tables) == sorted(name for names in divided for name in names)
        await db.execute((CITUS / "keys.sql").read_text())
        assert await db.fetch(NOT_BY_ID, list(SPREAD)) == []
        assert await db.fetch(WITHOUT, list(SPREAD)) == []
    finally:
        await db.close()


def test_the_script_distributes_what_the_page_does() -> None:
    text = (CITUS / "distribute.sql").read_text()
    spread = re.findall(r"create_distributed_table\('holdfast\.(\w+)', 'topic_id', colocate_with => '([\w.]+)'\)", text)
    assert spread[0] == ("jobs", "none")
    assert {place for _, place in spread[1:]} == {"holdfast.jobs"}
    assert sorted(name for name, _ in spread) == sorted(SPREAD)
    assert re.findall(r"create_reference_table\('holdfast\.(\w+)'\)", text) == listed("reference")


def listed(mark: str) -> list[str]:
    """The names in the first column of the table behind a mark."""
    table = re.split(rf"<!-- {mark}\b[^>]*-->\n\n", PAGE)[1].split("\n\n")[0]
    return [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def loose(plan: Plan, parents: dict[str, str]) -> list[str]:
    """The scans of a plan that may meet rows of another topic."""
    found = []
    for node in plan.nodes():
        table = node.get("Relation Name", "")
        told = " ".join(str(node.get(name, "")) for name in ("Index Cond", "Filter", "Recheck Cond"))
        if "Scan" in node["Node Type"] and parents.get(table, table) in SPREAD and not BOUND.search(told):
            found += [] if "TID Cond" in node else [f"{node['Node Type']} of {table}: {told}"]
    return found


async def plan_of(db: Session, statement: Statement) -> Plan:
    """Its plan, whatever it is called with."""
    given = f"({', '.join(['NULL'] * len(statement.parameters))})" if statement.parameters else ""
    await db.execute(f"PREPARE stays AS {statement.text}")
    try:
        return Plan(json.loads(await db.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE stays{given}"))[0]["Plan"])
    finally:
        await db.execute("DEALLOCATE stays")


def lands_elsewhere(statement: Statement) -> bool:
    """Whether it inserts rows of a topic that is a parameter, and neither $1 nor $2."""
    for table, columns, values in ARRIVES.findall(statement.body):
        named = dict(zip((name.strip() for name in columns.split(",")), values.split(","), strict=False))
        given = {named[name].strip() for name in {"topic", "topic_id"} & named.keys()}
        if table in SPREAD and any(re.fullmatch(r"\$([3-9]|\d\d)\b.*", value) for value in given):
            return True
    return False


def reached(name: str, bodies: dict[str, str], seen: set[str]) -> set[str]:
    """The tables that a function names, or one that it calls."""
    if name in seen or name not in bodies:
        return set()
    seen.add(name)
    body = bodies[name]
    return set(TABLE.findall(body)).union(*(reached(other, bodies, seen) for other in FUNCTION.findall(body)))
