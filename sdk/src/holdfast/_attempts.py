"""Decides whether and when a call is retried. Does no I/O."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast import errors
from holdfast._wire import Repeat, Request, refused

BASE_SECONDS: Final = 0.1
CAP_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """Timeouts and retries of a client.

    - timeout: seconds for a call with all retries, in addition to the call's `wait_ms`.
    - attempt_timeout: seconds for one attempt, in addition to the call's `wait_ms`.
    - connect_timeout: seconds to connect.
    - retries: most attempts after the first.
    """

    timeout: float = 30.0
    attempt_timeout: float = 10.0
    connect_timeout: float = 5.0
    retries: int = 10

    def __post_init__(self) -> None:
        for name in ("timeout", "attempt_timeout", "connect_timeout"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 seconds")
        if self.retries < 0:
            raise ValueError("retries must be 0 or more")


@dataclass(frozen=True, slots=True)
class Lost:
    """An attempt without an answer. `sent`: whether the service may have received the request."""

    error: errors.APIConnectionError
    sent: bool


class Attempts:
    """The attempts of one call. Times are of the monotonic clock."""

    def __init__(
        self,
        request: Request[Any],
        options: Options,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._request = request
        self._options = options
        self._clock = clock
        self._draw = draw
        self._made = 0
        self._wait = request.wait_ms / 1000
        self.deadline: Final = clock() + options.timeout + self._wait
        self.repeated = False  # whether an earlier attempt may have taken effect

    def seconds(self) -> float:
        """Seconds that the next attempt may take."""
        return max(0.001, min(self._options.attempt_timeout + self._wait, self.deadline - self._clock()))

    def pause(self, failed: Lost | errors.APIStatusError) -> float:
        """Seconds to wait before the next attempt. Raises the error if there must be none.

        Uses full jitter up to a limit that doubles each time, so that callers don't return at the same time. It is
        added to Retry-After."""
        error = failed.error if isinstance(failed, Lost) else failed
        maybe_done = failed.sent if isinstance(failed, Lost) else not refused(failed)
        self._made += 1
        if not self._again(failed, maybe_done) or self._made > self._options.retries:
            raise error
        self.repeated |= maybe_done
        seconds = self._draw(0, min(CAP_SECONDS, BASE_SECONDS * 2 ** min(self._made, 16)))
        if isinstance(failed, errors.APIStatusError):
            seconds += failed.retry_after or 0
        if self._clock() + seconds >= self.deadline:
            raise error
        return seconds

    def _again(self, failed: Lost | errors.APIStatusError, maybe_done: bool) -> bool:
        passing = isinstance(failed, Lost) or failed.status >= 500 or refused(failed)
        return passing and (self._request.repeat is Repeat.SAFE or not maybe_done)
