"""When a call is tried again, and for how long: the half of the retries that knows no I/O."""

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
    """How patient a client is.

    `timeout`: seconds for a call with all its tries; `attempt_timeout`: for one try; `connect_timeout`: to connect. The
    first two are counted beyond the `wait_ms` of the call. `retries`: most tries after the first.
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
    """No answer came. `sent`: whether the service may have had the request."""

    error: errors.APIConnectionError
    sent: bool


class Attempts:
    """The tries of one call. Times are of a clock of this process that only goes forward."""

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
        self.repeated = False  # whether one before the current try may have been carried out

    def seconds(self) -> float:
        """For how long the next try may take."""
        return max(0.001, min(self._options.attempt_timeout + self._wait, self.deadline - self._clock()))

    def pause(self, failed: Lost | errors.APIStatusError) -> float:
        """How many seconds to wait before the next try; raises the error where there is to be none.

        Full jitter: anything up to a bound that doubles each time, so that callers whom one failure hit do not come
        back together. A Retry-After is waited for, and the jitter comes on top."""
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
