"""The demo's HTTP client: one connection that is kept open, JSON in and out. It knows the service by its URL only."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any, Final
from urllib.parse import urlsplit

PATIENCE: Final = 15.0  # seconds; a service that is being restarted is back long before
PAUSE: Final = 0.1
TIMEOUT: Final = 40.0
AWAY: Final = (OSError, http.client.HTTPException)  # a refused, broken or timed out connection
BUSY: Final = frozenset({429, 503})


class Refused(Exception):
    """The service did not do what was asked, or is not there. Its text is the line that the user reads."""


class Client:
    """Calls a service. Not for several threads at once."""

    def __init__(self, url: str, key: str = "", *, timeout: float = TIMEOUT) -> None:
        """Raises Refused for a URL that is none."""
        parts = urlsplit(url if "//" in url else f"http://{url}")
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        try:
            self._connection = kinds[parts.scheme](parts.hostname or "", parts.port, timeout=timeout)
        except (KeyError, ValueError, http.client.InvalidURL):
            raise Refused(f"{url} is no URL of a service: those are http://host:port") from None
        self.url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._base = parts.path.rstrip("/")
        self._headers = {"content-type": "application/json"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """One call's answer. Repeated for PATIENCE seconds while the service is away or busy.

        What was repeated may have been done twice: two jobs for one enqueue, none for a second ack. Raises Refused.
        """
        end, reason = time.monotonic() + PATIENCE, ""
        while not reason or time.monotonic() <= end:
            if reason:
                time.sleep(PAUSE)
            try:
                status, answer = self.once(method, path, body)
            except AWAY as error:
                reason = f"the service at {self.url} does not answer: {error or type(error).__name__}"
            else:
                if 200 <= status < 300:
                    return answer
                reason = _reason(status, answer)
                if status not in BUSY:
                    raise Refused(reason)
        raise Refused(reason)

    def once(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Status and answer of a call that is made once; no JSON object is {}. Raises what AWAY lists."""
        data = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, self._base + path, data, self._headers)
            response = self._connection.getresponse()
            text = response.read()
        except BaseException:
            self.close()  # the next call starts on a connection of its own
            raise
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        return response.status, answer if isinstance(answer, dict) else {}

    def close(self) -> None:
        self._connection.close()


def _reason(status: int, answer: dict[str, Any]) -> str:
    error = answer.get("error")
    error = error if isinstance(error, dict) else {}
    hint = {
        401: " Give one with --key, or in HOLDFAST_API_KEYS.",
        403: " The demo makes, fills, empties and deletes a topic named demo-…: give a key that may.",
    }
    words = error.get("message") or "no reason given"
    return f"the service refused: {status} {error.get('code', '')}: {words}{hint.get(status, '')}"
