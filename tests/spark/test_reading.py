"""spark.read.format("holdfast"): what is in the tables, once each."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from pyspark.sql import DataFrame, SparkSession

from spark import source

EVENTS = {"enqueued": 3, "claimed": 1}


async def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """What a frame has, collected while this loop goes on serving."""
    return [row.asDict() for row in await asyncio.to_thread(frame.collect)]


async def test_a_jobs_life_as_the_service_wrote_it(
    spark: SparkSession, http: httpx.AsyncClient, database_url: str, topic: str
) -> None:
    await http.put(f"/v0/topics/{topic}", json={"type": "queue"})
    records = [{"data": {"n": n}, "tag": "ünï"} for n in range(3)]
    (await http.post(f"/v0/topics/{topic}", json={"node": "p", "records": records})).raise_for_status()
    claimed = (await http.post(f"/v0/topics/{topic}/claim", json={"node": "w", "max": 1})).json()["claimed"]
    (await http.post(f"/v0/topics/{topic}/ack", json={"node": "w", "seqs": [claimed[0]["$seq"]]})).raise_for_status()

    jobs = await rows(source.frame(spark, database_url, "jobs", topic).orderBy("seq"))
    assert [(job["seq"], job["topic"], job["state"], job["tag"]) for job in jobs] == [
        (2, topic, "ready", "ünï"),
        (3, topic, "ready", "ünï"),
    ]
    assert [bytes(job["payload"]) for job in jobs] == [b'{"n":1}', b'{"n":2}']
    events = await rows(source.frame(spark, database_url, "lease_events", topic).orderBy("seq", "at"))
    assert [(event["seq"], event["event"]) for event in events] == [
        (1, "enqueued"),
        (1, "claimed"),
        (1, "acked"),
        (2, "enqueued"),
        (3, "enqueued"),
    ]


async def test_a_frame_can_be_asked_twice(
    spark: SparkSession, http: httpx.AsyncClient, database_url: str, topic: str
) -> None:
    await http.put(f"/v0/topics/{topic}", json={"type": "queue"})
    (await http.post(f"/v0/topics/{topic}", json={"records": [{"data": n} for n in range(3)]})).raise_for_status()
    (await http.post(f"/v0/topics/{topic}/claim", json={"node": "w"})).raise_for_status()
    events = source.frame(spark, database_url, "lease_events", topic)
    enqueued, claimed = (events.where(f"event = '{event}'").groupBy("event").count() for event in EVENTS)
    assert {row["event"]: row["count"] for row in await rows(enqueued.unionByName(claimed))} == EVENTS
    assert await asyncio.to_thread(events.where("event = 'claimed'").count) == 1
    assert await asyncio.to_thread(events.count) == 4
