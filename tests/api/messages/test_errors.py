"""Whatever goes wrong under /api is shown in the dialect's way, and in v0's everywhere else."""

from __future__ import annotations

import httpx
import pytest

from tests.api import dialect
from tests.api.messages.client import refused


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api", 404, "not_found"),
        ("GET", "/api/nothing", 404, "not_found"),
        ("POST", "/api/version", 405, "method_not_allowed"),
        ("GET", "/api/messages/dequeue", 405, "method_not_allowed"),
        ("GET", "/api/topics/a%2Fb/purge", 400, "invalid_request"),
    ],
)
async def test_what_is_not_there(http: httpx.AsyncClient, method: str, path: str, status: int, code: str) -> None:
    refused(await http.request(method, path), status, code)


@pytest.mark.parametrize("path", ["/apis", "/v0/nothing", "/v0/api/version"])
async def test_other_paths_answer_as_v0_does(http: httpx.AsyncClient, path: str) -> None:
    dialect.refused(await http.get(path), 404, "not_found")


async def test_a_405_says_what_is_allowed(http: httpx.AsyncClient) -> None:
    answer = await http.delete("/api/version")
    assert answer.headers["allow"] == "GET"
    assert (await http.get("/api/messages/ack")).headers["allow"] == "POST"
