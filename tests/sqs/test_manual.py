"""The example of docs/sqs.md prints what the page says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.conftest import Running
from tests.sdk.pages import AS_PRINTED, examples

PAGE = Path(__file__).parents[2] / "docs/sqs.md"


async def test_the_page_prints_what_it_says(service: Running) -> None:
    [example] = examples(PAGE.read_text())
    code = example.code.replace(AS_PRINTED, service.url)
    run = partial(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    ran = await asyncio.to_thread(run)
    assert (ran.stdout, ran.stderr) == (example.prints, "")
