"""Cursors that no list has answered: each is refused, whatever it says, and none is an error of the service."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.api.dialect import Topic
from tests.api.keyring import client, make
from tests.routes import document

if TYPE_CHECKING:
    from tests.conftest import Running

# Every list with pages, and the parameter that says how long a page is.
LISTS: dict[str, str] = {}
for _path, _item in document()["paths"].items():
    _names = {one["name"] for one in _item.get("get", {}).get("parameters", ())}
    if "cursor" in _names:
        LISTS[_path] = "page_size" if "page_size" in _names else "limit"
WANTS: dict[str, dict[str, str]] = {
    "/api/messages": {"topic": "cursors"},
    "/v0/topics/{topic}/stats": {"by": "tenant"},
    "/v0/topics/{topic}/asof/jobs": {"at": "2999-01-01T00:00:00Z"},
}
VALUES: list[Any] = [10**40, -(2**63) - 1, 1.5, "\0", "\ud800", "x" * 3_000, None, []]


def cursor(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode()


def strange(known: Mapping[str, object]) -> list[str]:
    """Cursors of the same names as a good one, with other values; and such as are none at all."""
    made = [json.dumps({**known, name: value}).encode() for name in known for value in VALUES]
    made += [b"{}", b"[]", b"null", b"{", b"\xff", b'{"a":' * 1_500 + b"1" + b"}" * 1_500, b'{"x":' + b"[" * 3_000]
    return [*map(cursor, made), "!", "=", "A", "\u00e9", "%00", "A" * 7_000]


@pytest.fixture(scope="module")
async def root(service: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(service, "root") as http:
        queue = Topic(http, "cursors")
        await queue.put(replayable=True)
        await queue.append(*({"data": n, "tenant": f"t{n}"} for n in range(4)))
        await queue.claim("n", max=2)
        await queue.ack("n", [1, 2])
        for name in ("a", "b"):
            await Topic(http, f"{name}.cursors").put(schema={"type": "integer"})
            await make(http, name)
            body = {"topic": "cursors", "cron": "0 0 1 1 *", "record": {"data": 1}}
            assert (await http.put(f"/v0/schedules/{name}", json=body)).status_code in {200, 201}
            user = {"username": name, "password": "a password of some length"}
            assert (await http.post("/api/users", json=user)).status_code == 201
        yield http


@pytest.mark.parametrize("path", LISTS)
async def test_a_cursor_of_nobodys_is_refused(root: httpx.AsyncClient, path: str) -> None:
    url = path.replace("{topic}", "cursors")
    query = WANTS.get(path, {})
    good = (await root.get(url, params={**query, LISTS[path]: "1"})).json()["next_cursor"]
    known = json.loads(base64.urlsafe_b64decode(good + "=="))
    for one in strange(known):
        answer = await root.get(url, params={**query, "cursor": one})
        assert answer.status_code in {200, 400, 414}, (one[:80], base64.urlsafe_b64decode(one + "==")[:80], answer.text)
