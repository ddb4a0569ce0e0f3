"""The messages dialect as a client speaks it: verbs that must succeed, and what a refusal must look like."""

from __future__ import annotations

from typing import Any

import httpx

from tests.api import dialect

Body = dict[str, Any]


class Messages:
    """A topic's messages. Each verb fails the test unless it succeeds, and answers the body."""

    def __init__(self, http: httpx.AsyncClient, topic: str) -> None:
        self.http = http
        self.topic = topic

    def of(self, topic: str) -> Messages:
        """Another topic's, by the same client."""
        return Messages(self.http, topic)

    async def put(self, payload: str = "x", **fields: object) -> str:
        """Enqueue one: its id."""
        body = {"topic": self.topic, "payload": payload, **fields}
        shown: str = done(await self.http.post("/api/messages", json=body), 201)["id"]
        return shown

    async def batch(self, *messages: Body) -> list[str]:
        body = {"topic": self.topic, "messages": messages}
        ids: list[str] = done(await self.http.post("/api/messages/batch", json=body), 201)["ids"]
        return ids

    async def dequeue(self, count: int = 1, **fields: object) -> list[Body]:
        body = {"topic": self.topic, "count": count, **fields}
        messages: list[Body] = done(await self.http.post("/api/messages/dequeue", json=body))["messages"]
        return messages

    async def take(self) -> Body:
        """One message, which must come, within 15 s."""
        messages = await self.dequeue(wait_seconds=15)
        assert len(messages) == 1, "no message came"
        return messages[0]

    async def ack(self, message_id: str, **fields: object) -> None:
        done(await self.verb(message_id, "ack", **fields), 204)

    async def nack(self, message_id: str, **fields: object) -> None:
        done(await self.verb(message_id, "nack", **fields), 204)

    async def extend(self, message_id: str, **fields: object) -> Body:
        return done(await self.verb(message_id, "extend", **fields))

    async def verb(self, message_id: str, verb: str, **fields: object) -> httpx.Response:
        return await self.http.post(f"/api/messages/{message_id}/{verb}", json=fields)

    async def get(self, message_id: str, **query: str) -> Body:
        return done(await self.http.get(f"/api/messages/{message_id}", params=query))

    async def gone(self, message_id: str) -> bool:
        answer = await self.http.get(f"/api/messages/{message_id}")
        if answer.status_code == 404:
            refused(answer, 404, "not_found")
        return answer.status_code == 404

    async def page(self, **query: str | int) -> Body:
        return done(await self.http.get("/api/messages", params={"topic": self.topic, **query}))

    async def purge(self, *statuses: str) -> int:
        body = {"statuses": statuses} if statuses else None
        count: int = done(await self.http.post(f"/api/topics/{self.topic}/purge", json=body))["deleted"]
        return count

    async def counts(self) -> dict[str, int]:
        """By status, as the service's statistics have them."""
        stats = done(await self.http.get("/api/stats"))["topics"]
        return {one["status"]: one["count"] for one in stats if one["topic"] == self.topic}


def done(answer: httpx.Response, status: int = 200) -> Body:
    """The body of an answer that must be a success of this kind; of none, nothing."""
    asked = f"{answer.request.method} {answer.request.url}"
    assert answer.status_code == status, f"{asked}: {answer.status_code} {answer.text[:500]}"
    if status == 204:
        assert answer.content == b""
        return {}
    assert answer.headers["content-type"] == "application/json"
    body: Body = answer.json()
    return body


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """The error's text, if the answer is this refusal, with nothing beside it."""
    text: str = dialect.refused(answer, status, code)["message"]
    return text
