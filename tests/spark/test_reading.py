"""spark.read.format("holdfast"): what is in the tables, once each."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from pyspark.sql import DataFrame, SparkSession

from spark import source


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
