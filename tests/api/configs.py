"""/api/topic-configs as a client of the messages dialect speaks it."""

from __future__ import annotations

import json

import httpx

from app.features.topics.messages import REPLACED, RULED
from tests.api.dialect import Body
from tests.settings import defaults

V0_ALONE: Body = json.loads(
    json.dumps({n: value for n, value in defaults(but={*REPLACED, *RULED}).items() if value not in (None, {})})
)
OPEN = {"replayable": False, "durable": True, **V0_ALONE}  # what was left to the service is not shown


class Configs:
    """Configurations as a client of the messages dialect sees them."""

    def __init__(self, http: httpx.AsyncClient, topic: str) -> None:
        self.http = http
        self.topic = topic
        self.path = f"/api/topic-configs/{topic}"

    async def put(self, **settings: object) -> Body:
        return self._shown(await self.http.put(self.path, json=settings))

    async def get(self) -> Body:
        return self._shown(await self.http.get(self.path))

    async def drop(self) -> None:
        answer = await self.http.delete(self.path)
        assert (answer.status_code, answer.content) == (204, b"")

    async def listed(self, **query: object) -> list[Body]:
        answer = await self.http.get("/api/topic-configs", params=query)  # type: ignore[arg-type]
        items: list[Body] = answer.json()["items"]
        return items

    def _shown(self, answer: httpx.Response) -> Body:
        assert answer.status_code == 200, answer.text
        shown: Body = answer.json()
        assert shown.pop("topic") == self.topic
        assert None not in shown.values()
        return shown
