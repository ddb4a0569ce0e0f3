"""The messages dialect as a client speaks it: verbs that must succeed, and what a refusal must look like."""

from __future__ import annotations

from typing import Any

import httpx

Body = dict[str, Any]


def refused(answer: httpx.Response, status: int, code: str) -> str:
    """The error's text, if the answer is this refusal, with nothing beside it."""
    asked = f"{answer.request.method} {answer.request.url}"
    assert answer.status_code == status, f"{asked}: {answer.status_code} {answer.text[:500]}"
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error", "code"}, asked
    assert body["code"] == code, f"{asked}: {answer.text[:500]}"
    assert isinstance(body["error"], str)
    assert body["error"]
    text: str = body["error"]
    return text
