"""A small client of the service's HTTP API."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from spark.errors import Mistake, reason
from spark.texts import clean_line

URL: Final = "HOLDFAST_URL"
KEY: Final = "HOLDFAST_API_KEY"
LOCAL: Final = "http://127.0.0.1:8080"
SECONDS: Final = 30  # to wait for an answer
PAUSES: Final = (0.2, 1.0, 5.0)  # seconds, before a retry while the service is busy or starting
BUSY: Final = {429, 503}
UNREACHED: Final = {502, 504}  # a proxy's answers for a service that is down


class NoAnswer(Mistake):
    """The service does not answer now; a retry may succeed. The call may have been executed."""


class _NoRedirects(HTTPRedirectHandler):
    """urllib would send the key to the new address, and turn a POST into a GET."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER: Final = build_opener(_NoRedirects)


@dataclass(frozen=True, slots=True)
class Service:
    """The service's address, and the API key, if any."""

    url: str
    key: str | None = None

    @classmethod
    def of(cls, url: str | None, key: str | None) -> Service:
        """From the arguments, else HOLDFAST_URL and HOLDFAST_API_KEY, else the address of ./run. Raises Mistake."""
        found = (url or os.environ.get(URL) or LOCAL).rstrip("/")
        if not found.startswith(("http://", "https://")):
            raise Mistake(f"--url {found}: must start with http:// or https://")
        return cls(found, key or os.environ.get(KEY))

    def get(self, *path: str) -> dict[str, Any]:
        """The answer to a GET. Raises Mistake with the service's error message, and NoAnswer."""
        return self._ask("GET", path, None)

    def post(self, *path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a POST, which is only retried if the service did nothing. Raises Mistake and NoAnswer."""
        return self._ask("POST", path, body or {})

    def _ask(self, method: str, path: tuple[str, ...], body: dict[str, Any] | None) -> dict[str, Any]:
        url = "/".join((self.url, *(quote(part, safe="") for part in path)))
        headers = {"content-type": "application/json"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        data = None if body is None else json.dumps(body).encode()
        for pause in (*PAUSES, None):
            try:
                with _OPENER.open(Request(url, data, headers, method=method), timeout=SECONDS) as answer:  # noqa: S310
                    return _read(f"{method} {url}", answer.read())
            except HTTPError as error:
                if error.code not in BUSY or pause is None:
                    raise _refusal(f"{method} {url}", error) from None
            except (OSError, HTTPException) as error:
                cause = error.reason if isinstance(error, URLError) else reason(error)
                raise NoAnswer(f"{method} {url}: {cause}") from None
            except ValueError as error:
                raise Mistake(f"--url {self.url}: {error}") from None
            time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


def _read(what: str, answer: bytes) -> dict[str, Any]:
    try:
        found = json.loads(answer or b"{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Mistake(f"{what}: the answer is not a JSON object, so this is not the service: check --url")
    return found


def _refusal(what: str, error: HTTPError) -> Mistake:
    if 300 <= error.code < 400:
        where = clean_line(error.headers.get("location", "nowhere"))
        return Mistake(
            f"{what}: {error.code}, it redirects to {where}. The key is not sent there: use that address as --url"
        )
    kind = NoAnswer if error.code in BUSY | UNREACHED else Mistake
    return kind(f"{what}: {error.code} {clean_line(_reason(error))}")


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"]["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return error.reason
