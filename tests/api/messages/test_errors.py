"""Whatever goes wrong under /api is shown in the dialect's way, and in v0's everywhere else."""

from __future__ import annotations

import httpx
import pytest

from tests.api import dialect
from tests.api.messages.client import refused


async def test_what_is_not_there(http: httpx.AsyncClient) -> None:
    refused(await http.get("/api"), 404, "not_found")
    refused(await http.get("/api/nothing"), 404, "not_found")
    refused(await http.get("/api/messages/dequeue"), 405, "method_not_allowed")
    refused(await http.get("/api/topics/a%2Fb/purge"), 400, "invalid_request")


@pytest.mark.parametrize("path", ["/apis", "/v0/nothing", "/v0/api/version"])
async def test_other_paths_answer_as_v0_does(http: httpx.AsyncClient, path: str) -> None:
    dialect.refused(await http.get(path), 404, "not_found")
