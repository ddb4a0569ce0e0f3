"""The commands that pages show are run as they stand, whichever scheme and key the service wants."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.features.jobs import job_parts
from app.kernel import jobs as shown
from app.kernel.jobs import JobPlace
from app.kernel.model import Seq
from tests.admin.operator import Operator, Page, at_the_pages
from tests.api.conftest import Serve
from tests.api.dialect import Body, Topic, accepted
from tests.api.keyring import Services, bearer, client, make
from tests.conftest import Running

HOSTILE = "'; touch hacked; echo '\"$(touch hacked)`touch hacked`!!\\ \n\t\r\x1b[2J\u202e\u00a0é"
RECORDS: list[Body] = [
    {"data": {"say": HOSTILE, "n": 12345678901234567890123}, "tag": HOSTILE.replace("\n", ""), "priority": 7},
    {"data": [1, "a"], "meta": {"trace": "x'y", "n": 1}, "tenant": "o'brien", "group": "g\ttab", "max_deliveries": 3},
    {"data": HOSTILE, "content_type": "text/plain"},
    {"data": {"$base64": "AP8nIg=="}, "content_type": "image/png"},
    {"data": {"$base64": "eyIkYmFzZTY0IjoiQVA4PSJ9"}, "content_type": "application/json"},  # JSON that looks like bytes
]


def command_on(page: Page, place: str = "command") -> str:
    (found,) = page.main.findall(f".//pre[@id='{place}']")
    return "".join(found.itertext())


async def run(command: str, folder: Path) -> bytes:
    ran = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        command,
        cwd=folder,
        env={**os.environ, "HOLDFAST_API_KEY": "root"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    said, _ = await ran.communicate()
    assert list(folder.iterdir()) == []
    return said


async def test_the_first_command_makes_a_queue_with_a_job_and_takes_a_key_where_one_is_wanted(
    serve: Serve, new_database: Callable[[], Awaitable[str]], tmp_path: Path
) -> None:
    service = await (await Services.make(serve, new_database)).start(api_keys="root")
    async with client(service, "root") as http:
        commands = {command_on(await Operator(http).open(path)) for path in ("", "topics")}
        assert len(commands) == 1
        assert b'"created":true' in await run(commands.pop(), tmp_path)
        made = accepted(await http.get("/v0/topics/orders"))
    assert (made["type"], made["count"]) == ("queue", 1)
    config = made["config"]
    chosen = (config["max_deliveries"], config["dead_letter"], config["backoff"]["kind"])
    assert chosen == (20, "orders.dlq", "exponential")


async def test_a_test_job_makes_the_first_queue_and_is_shown_until_the_commands_have_completed_it(
    serve: Serve, new_database: Callable[[], Awaitable[str]], tmp_path: Path
) -> None:
    service = await (await Services.make(serve, new_database)).start(api_keys="root")
    async with at_the_pages(service, "", "root") as boss:
        page = await boss.press(await boss.open(""), "Send a test job")
        assert page.path == "/admin/topics/orders?sent=1"
        assert "Test job 1: ready." in page.text
        assert json.loads(await run(command_on(page, "claim-command"), tmp_path))["claimed"][0]["$seq"] == 1
        assert "Test job 1: leased." in (await boss.open(page.path)).text
        await run(command_on(page, "ack-command"), tmp_path)
        assert "Test job 1: no longer in the queue." in (await boss.open(page.path)).text
        config = accepted(await boss.http.get("/v0/topics/orders", headers=bearer("root")))["config"]
    assert (config["max_deliveries"], config["dead_letter"]) == (20, "orders.dlq")


async def test_an_empty_queue_leads_on_and_a_used_one_does_not(boss: Operator, queue: Topic, tmp_path: Path) -> None:
    page = await boss.open(f"topics/{queue.name}")
    assert b'"seqs":[1]' in await run(command_on(page), tmp_path)
    after = await boss.open(f"topics/{queue.name}")
    assert after.button("Send a test job") is None
    assert "Enqueue a job." not in after.text
    page = await boss.press(page, "Send a test job")
    assert page.path == f"/admin/topics/{queue.name}?sent=2"
    assert "Test job 2: ready." in page.text


async def test_a_test_job_takes_the_rights_and_the_token_of_an_enqueue(
    boss: Operator, service: Running, http: httpx.AsyncClient, queue: Topic, empty: Running
) -> None:
    reader, there = await make(http, "reads", ["read"]), f"/admin/topics/{queue.name}/test-job"
    async with at_the_pages(service, "", reader["secret"]) as guest:
        page = await guest.open(f"topics/{queue.name}")
        assert "Enqueue a job." in page.text
        assert page.button("Send a test job") is None
        for path in (there, "/admin/first-job"):
            assert (await guest.http.post(path, data={})).status_code == 403
    for path in (there, "/admin/first-job"):
        assert "from another session" in Page(await boss.http.post(path, data={"proof": "x"})).text
    async with client(empty) as nobody:  # without keys and users the pages are read only
        assert Page(await nobody.get("/admin/")).button("Send a test job") is None
        assert (await nobody.post("/admin/first-job", data={})).status_code == 403
    assert await queue.counts() == (0, 0)


async def test_a_trusted_proxy_or_the_page_before_says_whether_there_is_tls(
    service: Running, empty: Running, http: httpx.AsyncClient, queue: Topic
) -> None:
    await queue.add(1)
    for told, scheme in (("https", "https"), ("HTTPS", "https"), ("http", "http"), ("javascript", "http")):
        answer = await http.get(f"/admin/topics/{queue.name}/jobs/1", headers={"x-forwarded-proto": told})
        assert f"curl {service.url.replace('http', scheme)}/v0/topics" in command_on(Page(answer)), told
    host = empty.url.removeprefix("http://")
    for headers, scheme in (
        ({"x-forwarded-proto": "https"}, "http"),  # of nobody whom it trusts
        ({"referer": f"https://{host}/admin/sign-in"}, "https"),
        ({"referer": f"http://{host}/admin/sign-in"}, "http"),
        ({"referer": f"https://{host}.elsewhere.example/"}, "http"),
    ):
        async with client(empty) as nobody:
            answer = await nobody.get("/admin/topics", headers=headers)
        assert f"curl {scheme}://{host}/v0/topics/orders" in command_on(Page(answer)), headers


@pytest.mark.parametrize("place", range(len(RECORDS)))
async def test_a_jobs_command_makes_its_twin(
    boss: Operator, queue: Topic, service: Running, tmp_path: Path, place: int
) -> None:
    (seq,) = (await queue.append(RECORDS[place]))["seqs"]
    command = command_on(await boss.open(f"topics/{queue.name}/jobs/{seq}"))
    (twin,) = json.loads(await run(command, tmp_path))["seqs"]
    first, second = [accepted(await queue.http.get(f"{queue.path}/jobs/{one}")) for one in (seq, twin)]
    assert twin != seq
    for field in ("seq", "state", "created_at", "updated_at", "performance"):
        first.pop(field)
        second.pop(field)
    assert second == first
    policy = await service.context.policies.queue(queue.name)
    places = [JobPlace(queue.name, policy.topic.id, Seq(one)) for one in (seq, twin)]
    job, copy = [(await shown.show(service.context.pools.rest, [one]))[0] for one in places]
    assert (copy.payload, copy.content_type, copy.metadata) == (job.payload, job.content_type, job.metadata)


async def test_what_can_be_no_command_is_none(boss: Operator, queue: Topic, service: Running) -> None:
    await queue.append({"data": "x" * 100_000})
    page = await boss.open(f"topics/{queue.name}/jobs/1")
    assert "No command: the job is too large, or its payload does not match its content type." in page.text
    policy = await service.context.policies.queue(queue.name)
    (job,) = await shown.show(service.context.pools.rest, [JobPlace(queue.name, policy.topic.id, Seq(1))])
    not_text = replace(job, payload=b'"\xff"')
    assert job_parts.clone_command(service.url, queue.name, not_text, guarded=False) is None


@given(st.text(max_size=60).filter(lambda text: "\0" not in text))
@example(HOSTILE)
@settings(max_examples=15)
def test_a_word_for_bash_is_what_it_says(text: str) -> None:
    command = ["bash", "-c", f"printf %s {job_parts.quote(text)}"]
    assert subprocess.run(command, capture_output=True, check=True, timeout=60).stdout == text.encode()


def test_plain_words_stay_plain() -> None:
    assert job_parts.quote("a b") == "'a b'"
    assert job_parts.quote("a\nb'") == "$'a\\x0ab\\''"
