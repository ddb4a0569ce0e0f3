"""How tables are walked: in short statements along their keys, each row once. Without a Spark session: the reader's own
methods, called as Spark calls them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark import jdbc
from spark.errors import Mistake
from spark.source.connection import connect as open_connection
from spark.source.filters import Condition
from spark.source.options import Options
from spark.source.pages import Walk
from spark.source.plans import Span, cut
from spark.source.reader import Reader
from spark.source.tables import TABLES, Table
from tests.queue.calls import Session
from tests.spark.past import connected

Connect = Callable[[], Awaitable[Session]]
Row = dict[str, Any]
FILL = """
    INSERT INTO holdfast.inbox (topic, payload_text)
    SELECT $1, to_json(repeat('1', $3))::text FROM generate_series(1, $2)"""
SYNC_FILL = "INSERT INTO holdfast.inbox (topic, payload_text) SELECT %s, '1' FROM generate_series(1, %s::integer)"


def reader(dsn: str, table: str, **options: str) -> Reader:
    read = Options.read({"dsn": dsn, "table": table, **options})
    return Reader(read, read.table.schema(read.columns))


def pages(of: Reader) -> Iterator[list[Row]]:
    """Each page of each partition, as it comes."""
    for part in of.partitions():
        for batch in of.read(part):
            yield batch.to_pylist()


def everything(of: Reader) -> list[Row]:
    return [row for page in pages(of) for row in page]


@pytest.fixture
async def queue(topic: str, make_queue: Callable[..., Awaitable[object]]) -> str:
    await make_queue(topic)
    return topic


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 100)), max_size=8), st.integers(1, 12))
def test_a_cut_neither_overlaps_nor_leaves_a_gap(lengths: list[tuple[int, int]], most: int) -> None:
    spans = [Span(f"t{n}", low, low + length) for n, (low, length) in enumerate(lengths)]
    lists = cut(spans, most)
    places = [(span.name, place) for one in lists for span in one for place in range(span.low + 1, span.high + 1)]
    assert places == [(span.name, place) for span in spans for place in range(span.low + 1, span.high + 1)]
    assert len(lists) <= most
    sizes = [sum(span.high - span.low for span in one) for one in lists]
    assert all(a == b for a, b in pairwise(sizes[:-1]))


async def test_every_row_once_whatever_the_pages(new_database: Callable[[], Awaitable[str]]) -> None:
    dsn = await new_database()
    with connected(dsn) as db:
        for n in range(4):
            db.execute("INSERT INTO holdfast.topics (name, type) VALUES (%s, 'queue')", [f"t{n}"])
        db.execute("SELECT holdfast.create_topic_sequence(id) FROM holdfast.topics")
        for n in range(4):
            db.execute(SYNC_FILL, [f"t{n}", 10**n])
        db.execute("DELETE FROM holdfast.jobs WHERE seq % 3 = 0")
        for table in "jobs", "lease_events":
            wanted = sorted(db.execute(f"SELECT topic, seq FROM holdfast.{table}"))
            for partitions in "1", "7":
                rows = everything(reader(dsn, table, page="13", partitions=partitions))
                assert sorted((row["topic"], row["seq"]) for row in rows) == wanted


async def test_no_snapshot_outlives_its_page(database_url: str, connect: Connect, queue: str) -> None:
    db = await connect()
    await db.execute(FILL, queue, 2000, 1)
    for table in "jobs", "lease_events":
        seen = 0
        for _ in pages(reader(database_url, table, topic=queue, page="50", partitions="2")):
            held = await db.fetchrow(
                "SELECT state, backend_xmin, xact_start FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = 'holdfast spark read'"
            )
            assert held is not None
            assert (held["state"], held["backend_xmin"], held["xact_start"]) == ("idle", None, None)
            seen += 1
        assert seen >= 40


async def test_jobs_that_come_and_go_meanwhile(
    http: httpx.AsyncClient, database_url: str, connect: Connect, queue: str
) -> None:
    """What is there all the time is read once; of what comes and goes nothing twice."""
    db = await connect()
    await db.execute(FILL, queue, 3000, 1)
    done = asyncio.Event()

    async def work() -> None:
        while not done.is_set():
            claimed = (await http.post(f"/v0/topics/{queue}/claim", json={"node": "w", "max": 20})).json()["claimed"]
            seqs = [job["$seq"] for job in claimed]
            await http.post(f"/v0/topics/{queue}/ack", json={"node": "w", "seqs": seqs[:10]})
            await http.post(f"/v0/topics/{queue}/nack", json={"node": "w", "seqs": seqs[10:]})
            await http.post(f"/v0/topics/{queue}", json={"records": [{"data": 1}] * 10})

    workers = [asyncio.create_task(work()) for _ in range(3)]
    found = await asyncio.to_thread(everything, reader(database_url, "jobs", topic=queue, page="20", partitions="3"))
    done.set()
    await asyncio.gather(*workers)
    seqs = [row["seq"] for row in found]
    still = {
        row["seq"] for row in await db.fetch("SELECT seq FROM holdfast.jobs WHERE topic = $1 AND seq <= 3000", queue)
    }
    assert len(seqs) == len(set(seqs))
    assert 1000 < len(still) < 3000
    assert still <= set(seqs)


async def test_the_ledger_is_read_as_it_was_when_the_read_began(
    database_url: str, connect: Connect, queue: str
) -> None:
    """All partitions agree, though each page has a snapshot of its own; not even an older writer keeps rows back."""
    slow, fast = await connect(), await connect()
    transaction = slow.transaction()
    await transaction.start()
    await slow.execute(FILL, queue, 10, 1)
    await fast.execute(FILL, queue, 10, 1)
    read = reader(database_url, "lease_events", topic=queue)
    parts = read.partitions()
    await fast.execute(FILL, queue, 10, 1)
    await transaction.commit()
    found = [row["seq"] for part in parts for batch in read.read(part) for row in batch.to_pylist()]
    assert sorted(found) == list(range(11, 21))
    assert len(everything(reader(database_url, "lease_events", topic=queue))) == 30


async def test_a_window_of_the_ledger_however_it_is_read(database_url: str, connect: Connect, queue: str) -> None:
    db = await connect()
    marks = []
    for _ in range(4):
        marks.append(await db.fetchval("SELECT clock_timestamp()"))
        await db.execute(FILL, queue, 400, 1)
    for low, high, partitions in (0, 4, "1"), (1, 2, "1"), (1, 3, "3"), (3, 4, "3"):
        options = {"from": marks[low].isoformat()} | ({"to": marks[high].isoformat()} if high < 4 else {})
        read = reader(database_url, "lease_events", topic=queue, page="37", partitions=partitions, **options)
        found = sorted(row["seq"] for row in everything(read))
        assert found == list(range(low * 400 + 1, high * 400 + 1))


async def test_a_page_is_bounded_by_its_bytes_too(
    monkeypatch: pytest.MonkeyPatch, database_url: str, connect: Connect, queue: str
) -> None:
    db = await connect()
    monkeypatch.setattr("spark.source.pages.PAGE_BYTES", 100_000)
    await db.execute(FILL, queue, 20, 30_000)
    await db.execute(FILL, queue, 1, 500_000)
    await db.execute(FILL, queue, 20, 10)
    read = reader(database_url, "jobs", topic=queue, partitions="1")
    sizes = [[len(row["payload"]) for row in page] for page in pages(read)]
    assert sum(map(len, sizes)) == 41
    assert all(sum(size) < 100_000 or len(size) == 1 for size in sizes)
    assert [500_002] in sizes


async def test_a_day_that_was_dropped_or_rewritten_meanwhile_is_an_error(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    dsn = await new_database()
    with connected(dsn) as db:
        db.execute("INSERT INTO holdfast.topics (name, type) VALUES ('q', 'queue')")
        db.execute("SELECT holdfast.create_topic_sequence(id) FROM holdfast.topics")
        db.execute(SYNC_FILL, ["q", 1])
        for change in (
            "VACUUM FULL holdfast.lease_events",
            "SELECT holdfast.drop_day_partitions('lease_events', -1, false)",
        ):
            read = reader(dsn, "lease_events")
            parts = read.partitions()
            db.execute(change)
            with pytest.raises(Mistake, match="dropped by retention, or rewritten"):
                [list(read.read(part)) for part in parts]


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql+asyncpg://u:hunter2@h/db",
        "postgres//u:hunter2@h/db",
        "postgresql://u:hunter2%zz@h/db",
        "postgresql://u:hunter2/3@127.0.0.1/db",
        "postgresql://u:a@hunter2@127.0.0.1/db",
    ],
)
def test_an_address_that_is_none_is_not_shown(dsn: str) -> None:
    for work in (lambda: open_connection(dsn, read_only=True, purpose="test"), lambda: jdbc.options(dsn)):
        with pytest.raises(Mistake, match="dsn is not a valid address") as caught:
            work()
        assert "hunter2" not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_addresses_for_jdbc(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The database that psycopg finds, however it was told."""
    made = jdbc.options(database_url)
    parts = urlsplit(database_url)
    assert made["url"] == f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
    assert (made["user"], made["password"]) == (parts.username, parts.password)
    (tmp_path / "services").write_text(f"[here]\nhost={parts.hostname}\nport={parts.port}\ndbname={parts.path[1:]}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    monkeypatch.setenv("PGPASSWORD", parts.password or "")
    assert jdbc.options(f"service=here user={parts.username}") == made
    with pytest.raises(Mistake, match="does not support the parameter krbsrvname"):
        jdbc.options(f"{database_url}?krbsrvname=other")
    place = {"host": "::1", "port": "5433", "dbname": "d/b", "user": "u"}
    assert jdbc.to_spark_options(place)["url"] == "jdbc:postgresql://[::1]:5433/d%2Fb"
    assert jdbc.to_spark_options({**place, "sslmode": "require"})["sslmode"] == "require"
    with pytest.raises(Mistake, match="socket"):
        jdbc.to_spark_options({**place, "host": "/run/postgresql"})


def plan(
    dsn: str, table: Table, bounds: tuple[Condition, ...], after: tuple[Any, ...] | None, *asked: Condition
) -> dict[str, Any]:
    """How PostgreSQL runs a page."""
    walk = Walk(table, tuple(table.columns), asked, 100)
    sql, values = walk.statement(bounds, after)
    with open_connection(dsn, read_only=True, purpose="test") as connection:
        [(found,)] = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", values).fetchall()
    return dict(found[0]["Plan"])


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


KEYED = "(topic, seq) > (%s::text, %s::bigint) AND (topic, seq) <= (%s::text, %s::bigint)", ("a", 1, "z", 10**9)
DEAD = "(topic, dlq_moved_at) > (%s::text, %s::timestamptz)", ("a", "2026-01-01")


@pytest.mark.parametrize(
    ("name", "bounds", "place", "index"),
    [
        ("jobs", KEYED, (500,), "jobs_pkey"),
        ("records", KEYED, (500,), "records_pkey"),
        ("dead_letters", DEAD, ("2026-01-02", 5), "jobs_dead"),
    ],
)
async def test_a_page_goes_along_its_index_whatever_the_statistics_say(
    database_url: str, connect: Connect, queue: str, *,
    name: str, bounds: tuple[str, tuple[Any, ...]], place: tuple[Any, ...], index: str,
) -> None:  # fmt: skip
    db, table = await connect(), TABLES[name]
    await db.execute("ANALYZE holdfast.jobs")
    for filled in False, True:
        if filled:
            await db.execute(FILL, queue, 20_000, 1)
        for after in None, (queue, *place):
            found = list(nodes(plan(database_url, table, (Condition(*bounds),), after)))
            assert {node["Index Name"] for node in found if "Index Name" in node} == {index}
            kinds = {node["Node Type"] for node in found}
            assert kinds <= {"Index Scan", "Limit", "WindowAgg", "Subquery Scan", "Sort"}
            assert max(node["Actual Rows"] for node in found) <= 100, "a page reads no more than it shows"


async def test_a_page_looks_at_no_more_rows_however_few_are_wanted(
    database_url: str, connect: Connect, queue: str
) -> None:
    db = await connect()
    await db.execute(FILL, queue, 20_000, 1)
    bounds = Condition("(topic, seq) > (%s::text, %s::bigint)", (queue, 0))
    found = list(nodes(plan(database_url, TABLES["jobs"], (bounds,), None, Condition("tag = %s", ("none",)))))
    assert max(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in found) <= 100
    [scan] = [node for node in found if node["Node Type"] == "Index Scan"]
    assert scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] <= 120

    # And of a day no more than the blocks of its stretch.
    midnight = await db.fetchval("SELECT date_trunc('day', now(), 'UTC')")
    day = Condition("at >= %s AND at < %s::timestamptz + interval '1 day'", (midnight, midnight))
    few = Condition("ctid > %s::tid AND ctid < %s::tid", ("(10,0)", "(20,0)"))
    found = list(nodes(plan(database_url, TABLES["lease_events"], (day, few), None)))
    [scan] = [node for node in found if "Scan" in node["Node Type"] and "Relation Name" in node]
    assert scan["Node Type"] == "Tid Range Scan"
    assert scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] <= 12


async def test_few_rows_among_many_that_are_not_wanted(database_url: str, connect: Connect, queue: str) -> None:
    db = await connect()
    await db.execute(FILL, queue, 1000, 1)
    await db.execute("UPDATE holdfast.jobs SET tag = 'few' WHERE topic = $1 AND seq IN (1, 499, 500, 501, 1000)", queue)
    for value, wanted in ("few", [1, 499, 500, 501, 1000]), ("none", []):
        asked = {"page": "50", "partitions": "3", "filters": json.dumps([["tag", "=", value]])}
        assert [row["seq"] for row in everything(reader(database_url, "jobs", topic=queue, **asked))] == wanted


async def test_a_table_has_the_columns_that_it_has_in_sql(connect: Connect) -> None:
    db = await connect()
    for table in TABLES.values():
        columns = await db.fetch(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum",
            f"holdfast.{table.source}",
        )
        assert [row["attname"] for row in columns] == list(table.columns), table.name
