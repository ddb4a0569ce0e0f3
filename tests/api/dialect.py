"""The v0 dialect as a client speaks it: verbs that must succeed, and what a refusal must look like."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

if TYPE_CHECKING:
    from tests.conftest import Running

T = TypeVar("T")
Body = dict[str, Any]

JSON = {"content-type": "application/json"}


class Topic:
    """A topic by name. Each verb fails the test unless it succeeds, and answers the body."""

    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self.http = http
        self.name = name
        self.path = f"/v0/topics/{name}"

    def through(self, http: httpx.AsyncClient) -> Topic:
        """The same topic, by another client."""
        return Topic(http, self.name)

    async def put(self, **settings: object) -> Body:
        """A queue, unless `type` says otherwise."""
        return accepted(await self.http.put(self.path, json={"type": "queue", **settings}))

    async def drop(self) -> Body:
        return accepted(await self.http.delete(self.path))

    async def append(self, *records: Body, **fields: object) -> Body:
        return accepted(await self.http.post(self.path, json={"records": records, **fields}))

    async def add(self, count: int, **fields: object) -> list[int]:
        """So many jobs, alike but for their data, 1, 2, 3 and on: their seqs."""
        seqs: list[int] = (await self.append(*({"data": i + 1, **fields} for i in range(count))))["seqs"]
        return seqs

    async def claim(self, node: str = "n", **fields: object) -> Body:
        return await self.post("claim", node=node, **fields)

    async def take(self, node: str = "n", **fields: object) -> Body:
        """Claim one job, which must come, within 15 s."""
        answer = await self.claim(node, max=1, **{"wait_ms": 15_000, **fields})
        assert answer["count"] == 1, "no job came"
        job: Body = answer["claimed"][0]
        return job

    async def ack(self, node: str, seqs: Iterable[int], **fields: object) -> Body:
        return await self.post("ack", node=node, seqs=list(seqs), **fields)

    async def nack(self, node: str, seqs: Iterable[int], **fields: object) -> Body:
        return await self.post("nack", node=node, seqs=list(seqs), **fields)

    async def fail(self, node: str, seqs: Iterable[int], **fields: object) -> Body:
        return await self.post("fail", node=node, seqs=list(seqs), **fields)

    async def extend(self, node: str, seqs: Iterable[int], lease_ms: int, **fields: object) -> Body:
        return await self.post("extend", node=node, seqs=list(seqs), lease_ms=lease_ms, **fields)

    async def post(self, verb: str, **fields: object) -> Body:
        return accepted(await self.http.post(f"{self.path}/{verb}", json=fields))

    async def state(self) -> Body:
        return accepted(await self.http.get(self.path, params={"touch": "false"}))

    async def counts(self) -> tuple[int, int]:
        """ready and in_flight."""
        counts = (await self.state())["queue"]
        return counts["ready"], counts["in_flight"]

    async def until_counts(self, ready: int, in_flight: int) -> None:
        """Wait until the state shows these."""

        async def fact() -> bool:
            return await self.counts() == (ready, in_flight)

        await eventually(fact)


def accepted(answer: httpx.Response) -> Body:
    """The body of an answer that must be a success."""
    assert answer.status_code in {200, 201}, f"{answer.request.method} {answer.request.url}: {answer.text}"
    body: Body = answer.json()
    assert "performance" in body
    return body


async def every_page(http: httpx.AsyncClient, path: str, field: str, size: int = 2, **query: str) -> list[Body]:
    """What a list has, page by page."""
    found: list[Body] = []
    while True:
        answer = await http.get(path, params={"page_size": str(size), **query})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page[field]
        if "next_cursor" not in page:
            assert len(page[field]) <= size
            return found
        assert len(page[field]) == size
        query["cursor"] = page["next_cursor"]


def refused(answer: httpx.Response, status: int, code: str) -> Body:
    """The error, if the answer is this refusal, in its dialect's envelope with nothing beside it; as v0 has it."""
    asked = f"{answer.request.method} {answer.request.url}"
    assert answer.status_code == status, f"{asked}: {answer.status_code} {answer.text[:500]}"
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    if answer.request.url.path.split("/")[1] == "api":
        assert set(body) == {"error", "code", "docs"}, asked
        body = {"error": {"code": body["code"], "message": body["error"], "docs": body["docs"]}}
    assert set(body) == {"error"}, asked
    error: Body = body["error"]
    assert error.pop("docs", "") == f"docs/errors.md#{error['code']}", asked
    assert {"code", "message"} <= set(error) <= {"code", "message", "detail"}, asked
    assert error["code"] == code, f"{asked}: {answer.text[:500]}"
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error.get("detail", {}), dict)
    return error


async def eventually(fact: Callable[[], Awaitable[T]], seconds: float = 30) -> T:
    """The first true answer of `fact`; fails the test after `seconds`."""
    end = time.monotonic() + seconds
    while not (answer := await fact()):
        assert time.monotonic() < end, f"not within {seconds} s; the last answer was {answer!r}"
        await asyncio.sleep(0.01)
    return answer


async def until_waiting(service: Running, topic: str, callers: int) -> None:
    """Wait until so many callers, streams among them, wait in this service for the topic's next job."""

    async def fact() -> bool:
        return service.waiting(topic) == callers

    await eventually(fact)
