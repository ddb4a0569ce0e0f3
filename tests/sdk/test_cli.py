"""Each command against a service: what it does, what it prints for people and for programs, how it ends. The common
ones are the examples of docs/cli.md as well, which test_cli_page.py runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from holdfast import AsyncClient, AsyncTopic, models
from holdfast._cli.session import Exit
from tests.sdk.cli import Cli


async def test_topics(cli: Cli, client: AsyncClient, topic: str) -> None:
    made = await cli("topics", "put", topic, "max_deliveries=5", f"dead_letter={topic}.dead", "backoff={}", "--json")
    assert made.object["created"]
    assert (made.object["config"]["max_deliveries"], made.object["config"]["durable"]) == (5, True)
    again = await cli("topics", "put", topic, code=Exit.REFUSED)
    assert again.err.startswith("error: already_exists: Topic ")
    assert (await client.topic(topic).get()).config.max_deliveries == 5
    assert (await cli("topics", "put", topic, "--replace")).out == f"{topic} changed.\n"
    assert (await client.topic(topic).get()).config.max_deliveries == 20

    listed = await cli("topics", "list", "--prefix", topic)
    assert listed.out.split()[:2] == ["topic", "count"]
    assert topic in listed.out
    assert [one["topic"] for one in (await cli("topics", "list", "--prefix", topic, "--json")).objects] == [topic]
    assert "lease_ms" in (await cli("topics", "show", topic)).out
    assert (await cli("topics", "show", topic, "--json")).object["config"]["lease_ms"] == 30_000

    await cli("topics", "delete", topic, code=Exit.USAGE)
    assert (await cli("topics", "delete", topic, "--yes")).out == f"{topic} is deleted.\n"
    assert (await cli("topics", "delete", topic, "--yes", "--json", code=Exit.NOTHING)).object["deleted"] is False


async def test_configure_changes_what_is_named(cli: Cli, queue: AsyncTopic) -> None:
    async def config(*settings: str, stdin: str = "") -> dict[str, Any]:
        done = await cli("topics", "configure", queue.name, *settings, "--json", stdin=stdin)
        return dict(done.object["config"])

    changed = await config("lease_ms=60000", 'backoff={"kind": "fixed", "base_ms": 5}')
    assert (changed["lease_ms"], changed["durable"], changed["on_exhausted"]) == (60_000, True, "redeliver")
    changed = await config("max_deliveries=2", "dead_letter=elsewhere")
    assert (changed["lease_ms"], changed["on_exhausted"]) == (60_000, "dead_letter"), "what follows from it changes too"
    assert changed["backoff"]["base_ms"] == 5
    changed = await config("lease_ms=null", "--file=-", stdin='{"durable": false}')
    assert (changed["lease_ms"], changed["durability"], changed["dead_letter"]) == (30_000, "disk", "elsewhere")
    for hard in ('schema={"type": "object"}', 'webhook={"url": "https://example.org/", "secret": "0123456789"}'):
        before = await config(hard)
        assert await config("lease_ms=5000") == before | {"lease_ms": 5_000}, "what can't be shown stays, too"
        await config("lease_ms=null")
    odd = await cli("topics", "configure", queue.name, "backoff=fixed", code=Exit.REFUSED)
    assert odd.err == "error: invalid_request: Expected `object | null`, got `str` - at `$.backoff`.\n"
    wrong = await cli("topics", "configure", queue.name, "lease=1", code=Exit.USAGE)
    assert "Did you mean lease_ms?" in wrong.err


async def test_put(cli: Cli, queue: AsyncTopic) -> None:
    options = ["--tag", "t", "--priority", "3", "--delay", "1h", "--group", "g", "--max-deliveries", "2", "--meta"]
    put = await cli("put", queue.name, "two", "--text", *options, '{"a": 1}', "--json")
    assert put.object["seq"] == 1
    job = await queue.job(1)
    assert (job.data, job.tag, job.priority, job.group, job.meta) == ("two", "t", 3, "g", {"a": 1})
    assert job.state == "scheduled"
    await cli("put", queue.name, "--file", "-", "--bytes", stdin="\x00")
    assert (await queue.job(2)).data == b"\x00"
    await cli("put", queue.name, "4", "--run-at", "2100-01-01T00:00:00Z", "--ttl", "1d", "--dedupe-id", "d")
    duplicate = await cli("put", queue.name, "4", "--dedupe-id", "d")
    assert duplicate.out == f"{queue.name} 3 already existed\n"
    for wrong, why in (
        (["hello"], "use --text"),
        ([], "Pass either DATA"),
        (["1", "--delay", "soon"], "is not a time. Write it like"),
        (["1", "--run-at", "2100-01-01T00:00:00"], "no time zone"),
        (["1", "--meta", "[]"], "is not a JSON object"),
    ):
        assert why in " ".join((await cli("put", queue.name, *wrong, code=Exit.USAGE)).err.replace("│", "").split())


async def test_claim_and_settle(cli: Cli, queue: AsyncTopic) -> None:
    await queue.enqueue_many(["a", "b", "c", "d", "e"])
    taken = await cli("claim", queue.name, "-n", 2, "--lease", "5m", "--json")
    assert [(job["data"], job["node"]) for job in taken.objects] == [("a", "tests"), ("b", "tests")]
    assert (await cli("extend", queue.name, "--lease", "10m", stdin=taken.out)).out == "2 extended.\n"
    assert (await cli("ack", queue.name, "--result", '{"sent": 1}', stdin=taken.out)).out == "2 acked.\n"
    assert (await queue.result(1)).result == {"sent": 1}
    again = await cli("ack", queue.name, "--json", stdin=taken.out, code=Exit.REFUSED)
    assert (again.object["acked"], again.object["skipped"]) == (0, [1, 2])

    shown = await cli("claim", queue.name, "--max", 3)
    assert shown.out.splitlines()[0].split() == ["seq", "deliveries", "deadline", "lease", "id", "data"]
    assert (await cli("nack", queue.name, 3, "--delay", "1h", "--error", "421", "--refund")).out == "1 nacked.\n"
    assert (await queue.job(3)).deliveries == 0
    assert (await cli("fail", queue.name, 4, "--error", "no such address")).out == "1 failed.\n"
    assert (await queue.job(4)).last_error == "no such address"
    stale = await cli("ack", queue.name, 5, "--lease-id", "lease_" + "0" * 32, code=Exit.REFUSED)
    assert stale.err == "You don't hold these jobs, or no longer: 5.\n"
    assert (await cli("ack", queue.name, 5)).out == "1 acked.\n"

    nothing = await cli("claim", queue.name, "--wait", "50ms", code=Exit.NOTHING)
    assert (nothing.out, nothing.err) == ("", f"No job is ready in {queue.name}.\n")
    assert (await cli("claim", queue.name, "--json", code=Exit.NOTHING)).objects == []
    assert (await cli("ack", queue.name, stdin="xx", code=Exit.USAGE)).err.startswith("error: bad_line: stdin")


async def test_claim_from_several_topics(cli: Cli, client: AsyncClient, queue: AsyncTopic) -> None:
    first = client.topic(f"{queue.name}.first")
    await first.put()
    await first.enqueue("a")
    await queue.enqueue_many(["b", "c"])
    taken = await cli("claim", first.name, queue.name, "-n", 2, "--json")
    assert [(job["topic"], job["data"]) for job in taken.objects] == [(first.name, "a"), (queue.name, "b")]
    for topic in (first, queue):  # each topic settles its own of them
        assert (await cli("ack", topic.name, stdin=taken.out)).out == "1 acked.\n"
    shown = await cli("claim", first.name, queue.name)
    assert [line.split()[0] for line in shown.out.splitlines()] == ["topic", queue.name]


async def test_looking(cli: Cli, queue: AsyncTopic) -> None:
    await queue.enqueue_many(["\x1b[31mred\u202e", {"n": 2}])
    await queue.enqueue("later", delay_ms=3_600_000, tag="t")
    shown = (await cli("peek", queue.name)).out
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [["1", "ready"], ["2", "ready"], ["3", "scheduled"]]
    assert "\x1b" not in shown, "no payload tells the terminal what to do"
    assert "\u202e" not in shown
    assert [job["seq"] for job in (await cli("peek", queue.name, "--newest", "-n", 2, "--json")).objects] == [3, 2]
    assert [job["seq"] for job in (await cli("peek", queue.name, "--state", "scheduled", "--json")).objects] == [3]
    assert (await cli("peek", queue.name, 2, "--json")).object["data"] == {"n": 2}
    assert (await cli("peek", queue.name, "--tag", "no")).err == "There are no such jobs.\n"
    assert (await cli("explain", queue.name, "--json")).object["claimable"] == 2
    assert [event["event"] for event in (await cli("history", queue.name, 1, "--json")).objects] == ["enqueued"]
    assert (await cli("history", queue.name, 99, code=Exit.NOTHING)).err.startswith("error: not_found: ")
    tail = await cli("tail", queue.name, "-n", 2, "-c", 2)
    assert [line.split()[0] for line in tail.out.splitlines()] == ["2", "3"]
    tail = await cli("tail", queue.name, "--after", 1, "-c", 2, "--json")
    assert [one["data"] for one in tail.objects] == [{"n": 2}, "later"]


async def test_dead_letters(cli: Cli, client: AsyncClient, topic: str) -> None:
    queue = client.topic(topic)
    await cli("topics", "put", topic, "max_deliveries=1", f"dead_letter={topic}.dead")
    assert (await cli("dlq", "list", topic)).err == f"{topic} has no failed jobs.\n"
    await queue.enqueue_many(["a", "b", "c", "d"])
    await cli("claim", topic, "-n", 4)
    await cli("nack", topic, 1, 2, "--error", "smtp 421")
    await cli("nack", topic, 3, 4, "--error", "no such address")

    newest = (await cli("dlq", "list", f"{topic}.dead", "-n", 1, "--json")).objects
    assert [one["topic"] for one in newest] == [f"{topic}.dead"]
    kinds = {one["title"]: one for one in (await cli("dlq", "list", topic, "--kinds", "--json")).objects}
    assert {title: kind["count"] for title, kind in kinds.items()} == {"smtp *": 2, "no such address": 2}
    assert (await cli("dlq", "show", topic, 2, "--json")).object["last_error"] == "smtp 421"

    await cli("dlq", "requeue", topic, code=Exit.USAGE)
    assert (await cli("dlq", "requeue", topic, "--all", "--dry-run")).out == "Matches 4 jobs.\n"
    assert (await cli("dlq", "requeue", topic, 2)).out == "1 of 1 requeued, 0 skipped.\n"
    waits = await cli("dlq", "show", topic, 2, code=Exit.NOTHING)
    assert waits.err == f"error: not_out: Job 2 of {topic} is ready.\n"
    assert (await cli("dlq", "requeue", topic, "--error", "smtp", "--json")).object["requeued"] == 1

    await cli("dlq", "purge", topic, code=Exit.USAGE)
    kind = kinds["no such address"]["cluster"]
    assert (await cli("dlq", "purge", topic, "--kind", kind, "--yes")).out == "2 deleted.\n"
    assert (await cli("dlq", "purge", topic, "--yes", "--json")).object == {"topic": topic, "deleted": 0}


async def test_cancel(cli: Cli, queue: AsyncTopic) -> None:
    for n in range(6):
        await queue.enqueue(n, tag="odd" if n % 2 else "even")
    await cli("claim", queue.name)
    for wrong in ([], [1, "--tag", "odd"], [1, "--dry-run"]):
        await cli("cancel", queue.name, *wrong, code=Exit.USAGE)
    asked = await cli("cancel", queue.name, "--tag", "odd", code=Exit.USAGE)
    assert "Cancel about 3 jobs of" in asked.err
    assert (await queue.job(2)).state == "ready", "nobody has said yes"
    assert (await cli("cancel", queue.name, "--tag", "odd", "--rate", 1000, "--yes")).out == "3 cancelled.\n"
    ended = await cli("cancel", queue.name, "--state", "leased", "--yes", "--json")
    assert (ended.object["state"], ended.object["gone"], ended.object["marked"]) == ("done", 0, 1)
    sent = await cli("cancel", queue.name, "--tag", "none", "--no-wait", "--yes")
    assert sent.out == "Cancelling 0 jobs in the background.\n"

    some = await cli("cancel", queue.name, 3, 4711, code=Exit.REFUSED)
    assert (some.out, some.err) == ("1 cancelled.\n", "Not cancelled, because they have ended or don't exist: 4711.\n")
    assert (await cli("cancel", queue.name, 1)).out == "0 cancelled. 1 are leased: their workers are notified.\n"
    assert [job.seq async for job in queue.jobs(order="oldest")] == [1, 5]


async def test_release(cli: Cli, queue: AsyncTopic) -> None:
    for n in range(2):
        await queue.enqueue(n, group="g")
    await queue.enqueue(3)
    await queue.claim(node="hung", max=9)
    for wrong in ([], [1, "--group", "g"], ["--node", "hung", "--tenant", "t"]):
        await cli("release", queue.name, *wrong, code=Exit.USAGE)
    asked = await cli("release", queue.name, "--node", "hung", code=Exit.USAGE)
    assert f"End all leases of hung on jobs of {queue.name}?" in asked.err
    assert (await cli("release", queue.name, "--group", "g")).out == "1 lease ended.\n"
    assert (await queue.job(1)).deliveries == 1
    assert (await cli("release", queue.name, "--node", "hung", "--yes")).out == "1 lease ended.\n"
    some = await cli("release", queue.name, 1, 3, code=Exit.REFUSED)
    assert (some.out, some.err) == ("0 leases ended.\n", "Not leased: 1, 3.\n")
    await queue.claim(node="hung", max=1)
    back = await cli("release", queue.name, 1, "--node", "hung", "--refund", "--json")
    assert back.object == {"topic": queue.name, "released": 1, "ended": 0, "skipped": []}
    assert (await queue.job(1)).deliveries == 1


async def test_schedules(cli: Cli, queue: AsyncTopic) -> None:
    name = f"{queue.name}.nightly"
    put = await cli("schedules", "put", name, queue.name, "30 2 * * *", '{"a": 1}', "--missed", "skip", "--json")
    assert (put.object["record"], put.object["missed"]) == ({"data": {"a": 1}}, "skip")
    assert name in (await cli("schedules", "list", "--prefix", name)).out
    assert (await cli("schedules", "pause", name)).out == f"{name} is paused.\n"
    assert (await cli("schedules", "show", name, "--json")).object["paused"] is True
    assert (await cli("schedules", "resume", name)).out.startswith(f"{name} runs next at ")
    assert (await cli("schedules", "run", name)).out == f"{queue.name} 1\n"
    bad = await cli("schedules", "put", name, queue.name, "x", "1", code=Exit.REFUSED)
    assert bad.err.startswith("error: invalid_schedule: ")
    await cli("schedules", "delete", name, code=Exit.USAGE)
    assert (await cli("schedules", "delete", name, "--yes")).out == f"{name} is deleted.\n"
    assert (await cli("schedules", "show", name, code=Exit.NOTHING)).err.startswith("error: not_found: ")


async def test_hold_ups(cli: Cli, queue: AsyncTopic) -> None:
    assert (await cli("pause", queue.name)).out == f"{queue.name} is paused.\n"
    assert (await cli("pause", queue.name, "--tenant", "acme", "--json")).object["paused_tenants"] == ["acme"]
    assert (await cli("resume", queue.name, "--tenant", "acme")).out == f"{queue.name} is paused.\n"
    assert (await cli("drain", queue.name)).out.startswith(f"{queue.name} is paused and is draining. ")
    assert "Resume it with `holdfast resume" in (await cli("put", queue.name, "1", code=Exit.REFUSED)).err
    assert (await cli("resume", queue.name)).out == f"{queue.name} is running.\n"


async def test_stats(cli: Cli, queue: AsyncTopic) -> None:
    await queue.enqueue_many([models.Record(data=n, group="g") for n in range(2)])
    await queue.claim(max=2)
    await queue.enqueue(3, delay_ms=3_600_000, tenant="acme")
    one = (await cli("stats", queue.name, "--json")).object
    assert (one["topic"], one["ready"], one["scheduled"], one["in_flight"]) == (queue.name, 0, 1, 1)
    assert (one["blocked"], one["dead"], one["exact"], one["dead_exact"]) == (1, 0, True, True)
    assert one["oldest_ms"] > 0, "there is a job behind the head of its group"
    # Where more jobs are due than are looked at, the count says so.
    for _ in range(2):
        await queue.enqueue_many([models.Record(data=1, delay_ms=1)] * 5_500)
    await asyncio.sleep(0.01)  # until they are due
    one = (await cli("stats", queue.name, "--json")).object
    assert (one["ready"], one["exact"]) == (11_000, False)
    head, row = (await cli("stats", "--prefix", queue.name)).out.splitlines()
    assert (head.split()[:2], row.split()[:2]) == (["topic", "ready"], [queue.name, "11000+"])


async def test_bench_says_what_it_did_and_leaves_nothing(cli: Cli, client: AsyncClient) -> None:
    ran = await cli("bench", "--jobs", 250, "--batch", 100, "--clients", 2, "--size", 10, "--not-durable", "--json")
    assert [(one["verb"], one["jobs"]) for one in ran.objects] == [("enqueue", 250), ("claim", 250), ("ack", 250)]
    assert all(one["jobs_per_second"] > 0 and one["p50_ms"] <= one["max_ms"] for one in ran.objects)
    did = json.loads(ran.err.splitlines()[0])["note"]
    assert "250 jobs of 10 bytes, 100 per call, 2 concurrent calls, not durable" in did
    assert [one.topic async for one in client.topics.list(prefix="holdfast-bench-")] == []
