"""Frames that become jobs: all of them in one transaction, or none; once, however often a write is repeated."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from app.kernel.model import Batch
from app.kernel.topics.policy import Policy
from spark import source
from tests.processes import until
from tests.queue.calls import Session, events, put, row
from tests.queue.tallies import tallied

Write = Callable[..., None]
MakeQueue = Callable[..., Awaitable[Policy]]
LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)


@pytest.fixture
def write(database_url: str, topic: str) -> Write:
    """Writes a frame into the test's topic."""

    def write(frame: DataFrame, write_id: str | None = None) -> None:
        source.enqueue(frame, database_url, None if "topic" in frame.columns else topic, write_id)

    return write


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    """So many rows of {"n": …}, in order."""
    return spark.range(0, count, 1, partitions).selectExpr("concat('{\"n\":', id, '}') AS payload")


async def payloads(db: Session, topic: str) -> list[str]:
    """What is in a queue, in the order of its jobs."""
    found = await db.fetch("SELECT payload FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", topic)
    return [row["payload"].decode() for row in found]


async def left(db: Session) -> list[int]:
    """How many rows are staged, and how many tries are known."""
    return [int(await db.fetchval(f"SELECT count(*) FROM holdfast.{name}")) for name in ("staged", "stages")]


async def test_a_row_becomes_what_an_enqueue_makes(
    spark: SparkSession, db: Session, queue: Policy, write: Write
) -> None:
    """All options at once, but for those that place a job singly."""
    record = {
        "tags": ['t, "q"\n'],
        "producers": ["n"],
        "metadata": ['{"a": "b", "$user_id": "u"}'],
        "tenants": ["acme"],
        "priorities": [7],
        "run_ats": [LATER],
        "ttls_ms": [5_000],
        "max_deliveries": [3],
        "content_types": ["application/octet-stream"],
    }
    [first] = await put(db, queue, Batch(payloads=[b'\x00\xff,"\n'], **record))  # type: ignore[arg-type]
    frame = spark.createDataFrame(
        [(bytearray(b"\x00\xff,\"\n"), "t, \"q\"\n", "n", {"a": "b"}, "u", "acme", 7, LATER, 1, 5_000, 3,
          "application/octet-stream")],
        "payload binary, tag string, node string, metadata map<string,string>, user_id string, tenant string, "
        "priority int, run_at timestamp, delay_ms long, ttl_ms long, max_deliveries short, content_type string",
    )  # fmt: skip
    write(frame)
    one, two = [await row(db, queue, seq) for seq in (first, first + 1)]
    assert one is not None
    assert two is not None
    assert two["visible_at"] == LATER
    for name in ("created_at", "updated_at", "expires_at"):
        assert abs(two.pop(name) - one.pop(name)) < timedelta(minutes=5)  # type: ignore[operator]
    for name in ("ctid", "xmin", "seq", "position"):
        one.pop(name)
        two.pop(name)
    assert one == two
    assert await events(db, queue, first + 1) == await events(db, queue, first)
    lanes = await db.fetch("SELECT tenant, priority FROM holdfast.lanes WHERE topic = $1", queue.topic.name)
    assert ("acme", 7) in [tuple(lane) for lane in lanes]
    assert await tallied(db, queue)


async def test_all_partitions_in_one_transaction_and_in_their_order(
    spark: SparkSession, db: Session, queue: Policy, write: Write
) -> None:
    write(numbers(spark, 25_000))  # more than an Arrow batch each
    found = await payloads(db, queue.topic.name)
    assert sorted(found) == sorted(f'{{"n":{n}}}' for n in range(25_000))
    low = [one for one in found if int(one[5:-1]) < 12_500]
    assert low == [f'{{"n":{n}}}' for n in range(12_500)]
    of_one = await db.fetchval(
        "SELECT count(DISTINCT xmin::text) FROM holdfast.jobs WHERE topic = $1", queue.topic.name
    )
    assert of_one == 1
    assert await tallied(db, queue)
    assert await left(db) == [0, 0]


async def test_a_write_that_is_repeated_changes_nothing(
    spark: SparkSession, db: Session, queue: Policy, write: Write
) -> None:
    for _ in range(2):
        write(numbers(spark, 10), write_id=f"{queue.topic.name} of today")
    assert len(await payloads(db, queue.topic.name)) == 10
    write(numbers(spark, 10), write_id=f"{queue.topic.name} of tomorrow")
    write(numbers(spark, 10))
    assert len(await payloads(db, queue.topic.name)) == 30
    assert await left(db) == [0, 0]


async def test_groups_keys_and_ids_are_those_of_the_queue(
    spark: SparkSession, db: Session, topic: str, make_queue: MakeQueue, write: Write
) -> None:
    fifo = await make_queue(topic + ".fifo")
    plain = await make_queue(topic)
    rows: list[tuple[str | None, ...]] = [(f'{{"n":{n}}}', fifo.topic.name, f"g{n % 2}", None, None) for n in range(6)]
    rows += [(payload, plain.topic.name, None, "k", None) for payload in "12"]
    rows += [(payload, plain.topic.name, None, None, "once") for payload in "34"]
    schema = "payload string, topic string, `group` string, key string, dedupe_id string"
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    for _ in range(2):  # a .fifo topic knows the payloads by their hashes
        write(frame)
    states = await db.fetch("SELECT state::text, grp FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", fifo.topic.name)
    assert [tuple(job) for job in states] == [
        ("ready", "g0"), ("ready", "g1"), ("blocked", "g0"), ("blocked", "g1"), ("blocked", "g0"), ("blocked", "g1"),
    ]  # fmt: skip
    assert await payloads(db, plain.topic.name) == ["2", "3"]
    assert await tallied(db, fifo)
    assert await tallied(db, plain)


async def test_a_role_needs_no_more_than_its_page_says(
    spark: SparkSession, db: Session, queue: Policy, database_url: str
) -> None:
    role, password, parts = f"r_{secrets.token_hex(4)}", secrets.token_hex(8), urlsplit(database_url)
    rights = "open_stage(text), holdfast.commit_stages(text, text, bigint, bigint[], bigint), holdfast.drop_stages"
    await db.execute(f"""
        CREATE ROLE {role} LOGIN PASSWORD '{password}';
        GRANT USAGE ON SCHEMA holdfast TO {role};
        GRANT INSERT ON holdfast.staged TO {role};
        GRANT EXECUTE ON FUNCTION holdfast.{rights} TO {role};
    """)
    try:
        dsn = parts._replace(netloc=f"{role}:{password}@{parts.hostname}:{parts.port}").geturl()
        source.enqueue(numbers(spark, 10), dsn, queue.topic.name)
        assert len(await payloads(db, queue.topic.name)) == 10
    finally:
        await db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


@pytest.mark.parametrize(
    ("row", "schema", "said"),
    [
        (("{",), "payload string", r"row 2 of partition 0: the payload is not JSON that can be stored"),
        (("1", 10), "payload string, priority int", r"row 2 of partition 0: priority: 0 to 9"),
        (("\x00",), "payload string", "invalid byte sequence"),
    ],
)
async def test_what_a_queue_does_not_take_fails_with_its_reason_and_leaves_nothing(
    spark: SparkSession, db: Session, queue: Policy, write: Write, *,
    row: tuple[Any, ...], schema: str, said: str,
) -> None:  # fmt: skip
    fine = ("1", *[1] * (len(row) - 1))
    with pytest.raises(PySparkException, match=said):
        write(spark.createDataFrame([fine, row], schema).coalesce(1))
    assert await payloads(db, queue.topic.name) == []
    assert await left(db) == [0, 0]


async def test_a_topic_that_takes_nothing(
    spark: SparkSession, db: Session, queue: Policy, http: httpx.AsyncClient, write: Write
) -> None:
    with pytest.raises(PySparkException, match=r'there is no topic "nowhere"\. Create it first'):
        write(numbers(spark, 1, 1).selectExpr("payload", "'nowhere' AS topic"))
    (await http.post(f"/v0/topics/{queue.topic.name}/drain", json={})).raise_for_status()
    with pytest.raises(PySparkException, match="is draining"):
        write(numbers(spark, 1, 1))
    assert await left(db) == [0, 0]


async def test_a_task_that_fails_takes_the_others_with_it(
    spark: SparkSession, db: Session, queue: Policy, write: Write
) -> None:
    fails = "if(payload = '{\"n\":24999}', raise_error('on the way'), payload) AS payload"
    try:
        with pytest.raises(PySparkException, match="on the way"):
            write(numbers(spark, 25_000).selectExpr(fails))
        assert await payloads(db, queue.topic.name) == []
    finally:  # a task may be at work when the driver drops what is staged: a sweep takes that, later
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast spark write'"
        while await db.fetchval(sessions):
            await asyncio.sleep(0.01)
        await db.execute("DELETE FROM holdfast.staged; DELETE FROM holdfast.stages")


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("payload, 1 AS prio", {}, "column prio is not known; the columns are payload, topic"),
        ("payload, '1' AS priority", {}, "column priority is string; it must be int or tinyint or smallint or bigint"),
        ("payload AS key", {}, "the column payload is required"),
        ("payload", {"topic": ""}, "but not both"),
        ("payload", {"batchsize": "3"}, "option batchsize is not known"),
        ("payload", {"mode": "overwrite"}, "mode append|overwrite"),
    ],
)
def test_what_can_not_work_is_said_before_anything_is_written(
    spark: SparkSession, *, columns: str, options: dict[str, str], said: str
) -> None:
    source.register(spark)
    given = {"dsn": "postgresql://nobody@127.0.0.1:1/none", "topic": "t", "mode": "append", **options}
    given = {name: value for name, value in given.items() if value}
    frame = numbers(spark, 1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException, match=said):
        frame.write.format("holdfast").mode(given.pop("mode")).options(**given).save()


def test_plans_do_not_show_the_password(spark: SparkSession, queue: Policy, write: Write, database_url: str) -> None:
    """Neither the logical ones, which have the options, nor what Spark's UI has."""
    spark.conf.set("spark.sql.ui.explainMode", "extended")
    try:
        write(numbers(spark, 1))
    finally:
        spark.conf.unset("spark.sql.ui.explainMode")
    known: Any = spark._jsparkSession.sharedState().statusStore()

    def shown() -> str:
        return str(known.executionsList().last().physicalPlanDescription())

    until(lambda: "AppendData" in shown(), 30, or_show=shown)
    password = urlsplit(database_url).password
    assert password
    assert password not in shown()
