"""Facts of other processes, and waiting for them with a deadline."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(fact: Callable[[], T], seconds: float = 30.0, *, or_show: Callable[[], object] = lambda: "") -> T:
    """The first true answer of `fact`. Fails the test after `seconds`, with what `or_show` returns."""
    end = time.monotonic() + seconds
    while not (answer := fact()):
        assert time.monotonic() < end, f"not within {seconds} s: {or_show()}"
        time.sleep(0.01)
    return answer


def lives(pid: int) -> bool:
    """Whether the process runs; one that has ended and that nobody waited for does not."""
    state = _ps("-o", "stat=", "-p", str(pid))
    return bool(state) and not state[0].startswith("Z")


def children(pid: int, name: str) -> list[int]:
    """The live processes that this one started and whose command line contains `name`."""
    rows = [line.split(maxsplit=3) for line in _ps("-A", "-o", "ppid=,pid=,stat=,args=")]
    return [int(row[1]) for row in rows if int(row[0]) == pid and not row[2].startswith("Z") and name in row[3]]


def account(pid: int) -> str:
    """The name of the user that the process runs as."""
    return _ps("-o", "user=", "-p", str(pid))[0].strip()


def _ps(*words: str) -> list[str]:
    return subprocess.run(["ps", "-ww", *words], capture_output=True, text=True, check=False).stdout.splitlines()
