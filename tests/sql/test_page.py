"""docs/sql.md says what is so: its examples are run by psql as they stand, and answer as it prints."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from app.base.db import programs
from app.errors import ConfigurationError
from app.kernel.model import Batch
from app.kernel.topics import store
from app.kernel.topics.cache import Policies
from app.kernel.topics.policy import AskedSettings, resolve
from tests.queue.calls import put, take

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/sql.md"
STEP = re.compile(r"^```sql\n(.*?)^```\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BETWEEN = "-- next --"
DETAIL = re.compile(r"^(?:DETAIL|HINT|CONTEXT|LINE).*\n(?:[^\n]*\^\n)?", re.MULTILINE)


def psql() -> str:
    """The program; skips where there is none."""
    try:
        found = programs.find_programs(None).bindir / "psql"
    except ConfigurationError as error:
        pytest.skip(str(error))
    return str(found)


async def test_its_examples_work_as_they_stand(new_database: Callable[[], Awaitable[str]]) -> None:
    url = await new_database()
    pool = await asyncpg.create_pool(url, min_size=1, max_size=2)
    try:
        await store.put(pool, "orders", resolve("orders", AskedSettings(type="queue")))
        queue = await Policies(pool).queue("orders")
        await put(pool, queue, Batch([b'{"order":41}']))
        [job] = await take(pool, queue)
    finally:
        pool.terminate()
    steps = STEP.findall(PAGE.read_text())
    assert len(steps) >= 9
    role = f"r_{url[-12:]}"
    script = "".join(f"{commands}\n\\echo '{BETWEEN}'\n" for commands, _ in steps)
    ran = subprocess.run(
        [psql(), "-X", "-v", f"token=orders:{job.seq}:lease_{job.lease}", "-d", url],
        input=script.replace("reporting_app", role) + f"DROP OWNED BY {role};\nDROP ROLE {role};\n",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    answers = ran.stdout.split(BETWEEN + "\n")
    assert len(answers) == len(steps) + 1
    for (commands, printed), answer in zip(steps, answers, strict=False):
        assert DETAIL.sub("", answer).strip() == printed.strip(), commands


@pytest.mark.parametrize(("page", "topic"), [("README.md", "mail"), ("docs/quick-start.md", "hello")])
async def test_a_job_comes_with_the_transaction_that_a_page_shows(
    page: str, topic: str, new_database: Callable[[], Awaitable[str]]
) -> None:
    [block] = re.findall(r"^```sql\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    db = await asyncpg.connect(url := await new_database())
    pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
    try:
        await store.put(pool, topic, resolve(topic, AskedSettings(type="queue")))
        await db.execute(f"CREATE TEMP TABLE users (email text); {block}")
        assert await db.fetchval("SELECT count(*) FROM holdfast.messages WHERE topic = $1", topic) == 1
    finally:
        await db.close()
        await pool.close()
