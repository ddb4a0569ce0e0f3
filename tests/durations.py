"""How long each test takes: tests/durations.txt, from the JUnit XML that `./test --durations` has pytest write.

Setup and teardown count: what a module shares is with its first test. A test of many parameters is one line, their sum.
What runs in two commands, as behind PgBouncer, counts twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

FILE = Path(__file__).with_name("durations.txt")


def summed(reports: Iterable[Path]) -> dict[str, float]:
    """Seconds by test, in the order of files and names."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):  # our own pytest wrote it
            file, test = case.get("classname", "").replace(".", "/"), case.get("name", "").partition("[")[0]
            seconds[f"{file}.py::{test}"] += float(case.get("time", 0))
    return dict(sorted(seconds.items()))


def write(reports: Iterable[Path]) -> None:
    seconds = summed(reports)
    FILE.write_text("".join(f"{spent:8.2f} {test}\n" for test, spent in seconds.items()))
    print(f"{FILE.name}: {len(seconds)} tests, {sum(seconds.values()):.0f} s")
