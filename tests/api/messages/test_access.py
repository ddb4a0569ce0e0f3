"""Keys on the routes of the messages dialect; what test_scopes' table can't say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx

from tests.api.dialect import Topic
from tests.api.keyring import client, make
from tests.api.messages.client import Messages, done, refused

if TYPE_CHECKING:
    from tests.conftest import Running


async def test_a_key_of_other_topics_neither_sees_nor_settles(
    guarded: Running, root: httpx.AsyncClient, topic: str
) -> None:
    theirs, mine = Messages(root, f"theirs.{topic}"), Messages(root, f"mine.{topic}")
    ids = [await one.put() for one in (theirs, mine)]
    for one in (theirs, mine):
        await one.dequeue()
    key = await make(root, f"k-{topic}", prefixes=["mine."])
    async with client(guarded, key["secret"]) as http:
        assert (await Messages(http, mine.topic).get(ids[1]))["id"] == ids[1]
        refused(await http.get(f"/api/messages/{ids[0]}"), 404, "not_found")
        refused(await http.post(f"/api/messages/{ids[0]}/ack"), 404, "not_found")
        refused(await http.get("/api/messages"), 403, "forbidden")
        stats = done(await http.get("/api/stats"))["topics"]
        assert {one["topic"] for one in stats if topic in one["topic"]} == {mine.topic}
        assert done(await http.post("/api/messages/ack", json={"ids": ids})) == {"acked": 1, "skipped": [ids[0]]}
    assert (await theirs.get(ids[0]))["status"] == "processing"


async def test_a_dead_letter_in_a_topic_of_others_is_out_of_reach(
    guarded: Running, root: httpx.AsyncClient, topic: str
) -> None:
    messages = Messages(root, f"mine.{topic}")
    await Topic(root, messages.topic).put(max_deliveries=1, dead_letter=f"theirs.{topic}")
    one = await messages.put()
    await messages.dequeue()
    await messages.nack(one)
    assert (await messages.get(one))["topic"] == f"theirs.{topic}"
    key = await make(root, f"k-{topic}", prefixes=["mine."])
    async with client(guarded, key["secret"]) as http:
        refused(await http.get(f"/api/messages/{one}"), 404, "not_found")
        refused(await http.post(f"/api/messages/{one}/ack"), 404, "not_found")
