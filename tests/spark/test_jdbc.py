"""Plain JDBC, as Spark has it: rows appended to the inbox are jobs, and the tables and views can be read."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, take
from tests.queue.tallies import tallied

MakeQueue = Callable[..., Awaitable[Policy]]
LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)


def jdbc(url: str, **options: str) -> dict[str, str]:
    """The options of docs/spark.md for a database."""
    parts = urlsplit(url)
    return {
        "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}?reWriteBatchedInserts=true",
        "user": parts.username or "",
        "password": parts.password or "",
        "driver": "org.postgresql.Driver",
        **options,
    }


def append(frame: DataFrame, url: str, **options: str) -> None:
    given = jdbc(url, dbtable="holdfast.inbox", **options)
    frame.write.format("jdbc").mode("append").options(**given).save()


def numbers(spark: SparkSession, topic: str, count: int) -> DataFrame:
    return spark.range(0, count, 1, 2).selectExpr(f"'{topic}' AS topic", "concat('{\"n\":', id, '}') AS payload_text")


async def test_every_column_without_stringtype(
    spark: SparkSession, db: Session, topic: str, make_queue: MakeQueue, *, database_url: str
) -> None:
    queue = await make_queue(topic + ".fifo")
    row = (queue.topic.name, bytearray(b"\x00\xff"), "application/octet-stream", '{"a": 1}', "t", "n", 7, 1, LATER,
           5_000, 3, "acme", "g", "d", "u", "https://example.org/")  # fmt: skip
    schema = (
        "topic string, payload binary, content_type string, metadata string, tag string, node string, priority int, "
        "delay_ms long, run_at timestamp, ttl_ms long, max_deliveries int, tenant string, `group` string, "
        "dedupe_id string, user_id string, webhook string"
    )
    for _ in range(2):  # the second one is a duplicate, by its dedupe_id
        append(spark.createDataFrame([row], schema), database_url)
    [job] = await db.fetch("SELECT * FROM holdfast.jobs WHERE topic = $1", queue.topic.name)
    names = ("payload", "content_type", "metadata", "tag", "producer", "priority", "visible_at", "max_deliveries",
             "tenant", "grp", "webhook")  # fmt: skip
    assert [job[name] for name in names] == [
        b"\x00\xff", "application/octet-stream", '{"a": 1, "$user_id": "u"}', "t", "n", 7, LATER, 3, "acme", "g",
        "https://example.org/",
    ]  # fmt: skip


async def test_what_is_refused_says_why(spark: SparkSession, db: Session, queue: Policy, database_url: str) -> None:
    """What is refused, and why, tests/sql says; here that it comes through."""
    for column, said in {
        "'{' AS payload_text": "the payload is not JSON that can be stored",
        "1 AS prio": "prio",
    }.items():
        frame = spark.range(2).selectExpr(f"'{queue.topic.name}' AS topic", column).coalesce(1)
        with pytest.raises((PySparkException, Py4JJavaError), match=said):
            append(frame, database_url)
    assert await db.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", queue.topic.name) == 0


async def test_each_partition_is_a_transaction_of_its_own(
    spark: SparkSession, db: Session, queue: Policy, database_url: str
) -> None:
    """Which is why a write that fails, and is run again, asks for keys or dedupe ids; or for format("holdfast")."""
    ided = numbers(spark, queue.topic.name, 20).selectExpr("*", "payload_text AS dedupe_id")
    late = "if(payload_text = '{\"n\":19}', '{', payload_text) AS payload_text"
    with pytest.raises((PySparkException, Py4JJavaError), match="not JSON"):
        append(ided.selectExpr("topic", late, "dedupe_id"), database_url)
    left = await db.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = $1", queue.topic.name)
    assert left in (0, 10)  # the other partition's, unless it was stopped in time
    append(ided, database_url)
    append(ided, database_url)
    assert len(await take(db, queue, 99)) == 20


async def test_a_role_needs_no_more_than_the_inbox_and_tables_and_views_are_read_by_ranges(
    spark: SparkSession, db: Session, queue: Policy, database_url: str
) -> None:
    """The role of docs/spark.md."""
    role, password, parts = f"jdbc_{secrets.token_hex(4)}", secrets.token_hex(8), urlsplit(database_url)
    await db.execute(f"""
        CREATE ROLE {role} LOGIN PASSWORD '{password}';
        GRANT USAGE ON SCHEMA holdfast TO {role};
        GRANT SELECT, INSERT ON holdfast.inbox TO {role};
    """)
    try:
        lesser = parts._replace(netloc=f"{role}:{password}@{parts.hostname}:{parts.port}").geturl()
        append(numbers(spark, queue.topic.name, 100), lesser)
    finally:
        await db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert await tallied(db, queue)

    of_topic = f"(SELECT seq, payload, state FROM holdfast.job_states WHERE topic = '{queue.topic.name}') jobs"
    ranges = {"partitionColumn": "seq", "lowerBound": "1", "upperBound": "101", "numPartitions": "4", "fetchsize": "10"}
    frame = spark.read.format("jdbc").options(**jdbc(database_url, dbtable=of_topic, **ranges)).load()
    assert frame.rdd.getNumPartitions() == 4
    rows = frame.collect()
    assert sorted(bytes(row["payload"]) for row in rows) == sorted(b'{"n":%d}' % n for n in range(100))
    assert {row["state"] for row in rows} == {"ready"}
    seen = spark.read.format("jdbc").options(**jdbc(database_url, dbtable="holdfast.messages")).load()
    assert seen.where(f"topic = '{queue.topic.name}' AND status = 'pending'").count() == 100
