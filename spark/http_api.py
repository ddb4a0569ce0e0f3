"""The service's HTTP API, as far as pipelines call it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from spark.errors import Mistake

URL: Final = "HOLDFAST_URL"
KEY: Final = "HOLDFAST_API_KEY"
LOCAL: Final = "http://127.0.0.1:8080"
SECONDS: Final = 30  # for an answer
PAUSES: Final = (0.2, 1.0, 5.0)  # seconds, where it is busy or starting
BUSY: Final = {429, 503}


@dataclass(frozen=True, slots=True)
class Service:
    """Where it is, and the key that it asks for, if any."""

    url: str
    key: str | None = None

    @classmethod
    def of(cls, url: str | None, key: str | None) -> Service:
        """What was given, or HOLDFAST_URL and HOLDFAST_API_KEY say, or ./run's. Raises Mistake."""
        found = (url or os.environ.get(URL) or LOCAL).rstrip("/")
        if not found.startswith(("http://", "https://")):
            raise Mistake(f"--url {found}: http://… or https://…")
        return cls(found, key or os.environ.get(KEY))

    def get(self, *path: str) -> dict[str, Any]:
        """What a GET answers. Raises Mistake with the service's reason, or if it does not answer."""
        return self._ask("GET", path, None)

    def post(self, *path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The same of a POST. It is sent again only where the service said that it did nothing."""
        return self._ask("POST", path, body or {})

    def _ask(self, method: str, path: tuple[str, ...], body: dict[str, Any] | None) -> dict[str, Any]:
        url = "/".join((self.url, *(quote(part, safe="") for part in path)))
        headers = {"content-type": "application/json"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        for pause in (*PAUSES, None):
            try:
                with urlopen(Request(url, data, headers, method=method), timeout=SECONDS) as answer:  # noqa: S310
                    return json.loads(answer.read() or b"{}")  # type: ignore[no-any-return]
            except HTTPError as error:
                if error.code not in BUSY or pause is None:
                    raise Mistake(f"{method} {url}: {error.code} {_reason(error)}") from None
            except (OSError, HTTPException, ValueError) as error:
                raise Mistake(f"{method} {url}: {error}") from None
            time.sleep(pause)
        raise AssertionError("the last one answers or raises")


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return error.reason
