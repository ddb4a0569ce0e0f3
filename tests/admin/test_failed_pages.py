"""The failed jobs of a topic: their kinds and an example of each, requeues, deletion."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import httpx
import pytest

from tests.admin.conftest import HOSTILE, HOUR
from tests.admin.operator import Operator, Page, at_the_pages, words
from tests.api.dialect import Body, Topic, accepted, eventually
from tests.api.keyring import bearer, make
from tests.api.people import add_user
from tests.conftest import Running

GOOD = {"order": 1, "address": {"city": "Bern", "zip": 3011}, "note": "ring twice"}
BAD = {"order": 2, "address": {"city": "Bern"}, "note": HOSTILE}
TRACEBACK = 'Traceback (most recent call last):\n  File "w.py", line 3, in <module>\nKeyError: {}'


async def kill(topic: Topic, records: Sequence[Body], error: str = "boom", node: str = "w-7") -> None:
    """Jobs whose only delivery ends with this error."""
    await topic.append(*records)
    seqs = [job["$seq"] for job in (await topic.claim(node, max=len(records), lease_ms=HOUR))["claimed"]]
    await topic.nack(node, seqs, errors=[error.format(n) for n in seqs])


@pytest.fixture
async def fails(http: httpx.AsyncClient, topic: str) -> Topic:
    """A queue in which what fails stays."""
    made = Topic(http, topic)
    await made.put(max_deliveries=1, on_exhausted="fail")
    return made


@pytest.fixture
async def letters(http: httpx.AsyncClient, topic: str) -> Topic:
    """A queue with a dead-letter topic."""
    made = Topic(http, topic)
    await made.put(max_deliveries=1, dead_letter=f"{topic}.dead", replayable=True, replay_window_ms=3_600_000)
    return made


async def ended(boss: Operator, page: Page) -> Page:
    """The page of a requeue or cancel, once it is done."""

    async def fact() -> Page | None:
        shown = await boss.open(page.path)
        return shown if shown.all(".//*[@id='live']//span")[0] == "done" else None

    found = await eventually(fact, 30)
    assert found is not None
    return found


async def trail(topic: Topic) -> list[tuple[str, str | None]]:
    entries = accepted(await topic.http.get(f"/v0/admin/audit?subject={topic.name}&page_size=5"))["entries"]
    return [(entry["action"], entry["actor_name"]) for entry in entries]


async def test_the_kind_that_grew_comes_first_with_an_example_beside_what_went_well(
    boss: Operator, letters: Topic, service: Running
) -> None:
    await letters.append({"data": GOOD})
    await letters.ack("w-1", [(await letters.take("w-1"))["$seq"]])
    await kill(letters, [{"data": {"order": n}} for n in range(5)], "ValueError: an old story")
    async with service.context.pools.rest.acquire() as db:  # a day that no test can wait for
        await db.execute(
            "UPDATE holdfast.jobs SET failed_at = failed_at - interval '1 day', "
            "dlq_moved_at = dlq_moved_at - interval '1 day' WHERE last_error LIKE '%old story'"
        )
    await kill(letters, [{"data": BAD, "key": f"k-{n}", "tag": HOSTILE[:60]} for n in range(3)], TRACEBACK + HOSTILE)
    page = await boss.open(f"topics/{letters.name}/dead")
    first, second = page.table
    assert "KeyError" in first[0]
    assert first[0].endswith("new")
    assert (first[1:3], second[1:3]) == (["+3", "3"], ["0", "5"])
    page = await boss.follow(page, page.rows[0])
    (example,) = page.main.iterfind(".//*[@id='example']")
    assert 'File "w.py", line 3, in <module>' in words(example)
    assert "w-7" in words(example)
    note = HOSTILE.replace('"', '\\"')
    assert [words(one) for one in example.iter("del")] == ['"order": 2,', '"city": "Bern"', f'"note": "{note}"']
    there = ['"order": 1,', '"city": "Bern",', '"zip": 3011', '"note": "ring twice"']
    assert [words(one) for one in example.iter("ins")] == there
    assert "completed" in words(example)


async def test_a_list_is_filtered_and_paged_by_its_address(boss: Operator, letters: Topic) -> None:
    await kill(letters, [{"data": n, "key": f"k-{n}"} for n in range(120)], "Timeout after {} s")
    base = f"topics/{letters.name}/dead/jobs"
    page = await boss.open(base)
    seen = page.rows
    while page.link("Next"):
        page = await boss.follow(page, "Next")
        seen += page.rows
    assert len(set(seen)) == len(seen) == 120
    page = await boss.press(await boss.open(base), "Filter", key="k-1")
    assert "key=k-1" in page.path
    assert page.rows == [f"{letters.name}.dead:2"]
    assert "Requeue 1 job" in (await boss.follow(page, "Requeue all of these")).text
    job = await boss.follow(page, "↗")
    assert job.path == f"/admin/topics/{letters.name}.dead/jobs/2"
    assert len((await boss.open(f"topics/{letters.name}.dead/dead/jobs")).rows) > 1, "the topic that they are in"
    page = await boss.open(f"{base}?error=nothing+has+this&age=1h")
    assert (page.rows, "No failed job matches." in page.text) == ([], True)


async def test_one_is_requeued_and_some_that_are_picked(boss: Operator, fails: Topic, letters: Topic) -> None:
    await fails.put(max_deliveries=1, on_exhausted="fail")
    await kill(fails, [{"data": n} for n in range(4)])
    page = await boss.open(f"topics/{fails.name}/dead/jobs")
    assert "No job is selected." in (await boss.press(page, "Requeue selected…", seq=None)).text
    page = await boss.press(page, "Requeue selected…", seq=["1", "2"])
    assert "Requeue 2 jobs" in page.text
    page = await boss.press(page, "do-requeue", rate="fast", status=400)
    assert "Must be a whole number from 0 to 100,000." in page.fault("rate")
    assert [page.value(field) for field in ("rate", "first")] == ["fast", "0"]
    await ended(boss, await boss.press(page, "do-requeue", rate=""))
    assert (await fails.counts())[0] == 2
    page = await boss.open(f"topics/{fails.name}/dead/jobs")
    page = await boss.follow(await boss.follow(page, page.rows[0]), "Requeue this one")
    assert "Requeue 1 job" in page.text
    await ended(boss, await boss.press(page, "do-requeue"))
    assert (await fails.counts())[0] == 3


async def test_a_kind_is_deleted_once_the_topics_name_is_typed(boss: Operator, letters: Topic) -> None:
    await kill(letters, [{"data": n} for n in range(3)], "ValueError: {}")
    await kill(letters, [{"data": n} for n in range(2)], "KeyError: {}")
    dead = Topic(letters.http, f"{letters.name}.dead")
    page = await boss.follow(await boss.open(f"topics/{letters.name}/dead"), "ValueError")
    page = await boss.follow(page, "Delete this kind")
    page = await boss.press(page, "Delete", typed=letters.name.upper(), status=400)
    assert page.fault("typed") == "This is not the topic's name."
    assert (await dead.counts())[0] == 5
    assert "3 jobs were deleted." in (await boss.press(page, "Delete", typed=letters.name)).text
    assert (await dead.counts())[0] == 2
    # The rest, where they are; in the topic itself no dead letter waits.
    page = await boss.follow(await boss.open(f"topics/{letters.name}/dead/purge"), dead.name)
    assert "2 jobs were deleted." in (await boss.press(page, "Delete", typed=dead.name)).text
    assert (await dead.counts())[0] == 0
    assert (await trail(letters))[0] == ("cluster.purged", "boss")
    assert (await trail(dead))[0] == ("topic.purged", "boss")


async def test_an_operator_is_asked_again_once_there_are_twice_as_many(boss: Operator, fails: Topic) -> None:
    base = f"topics/{fails.name}/dead"
    none = await boss.open(f"{base}/purge")
    await kill(fails, [{"data": n} for n in range(3)])
    assert "from 0 to 3." in (await boss.press(none, "Delete", typed=fails.name, status=409)).text
    requeue = await boss.open(f"{base}/requeue")
    await kill(fails, [{"data": n} for n in range(3)])
    assert "since you opened this form: from 3 to 6." in (await boss.press(requeue, "do-requeue", status=409)).text
    purge = await boss.open(f"{base}/purge")
    await kill(fails, [{"data": n} for n in range(7)])
    purge = await boss.press(purge, "Delete", typed=fails.name, status=409)
    assert "doubled since you opened this form: from 6 to 13." in purge.text
    assert purge.value("typed") == "", "it is typed once more"
    await kill(fails, [{"data": n} for n in range(2)])
    assert "15 jobs were deleted." in (await boss.press(purge, "Delete", typed=fails.name)).text


async def test_who_may_not_see_the_dead_letters_is_told_so(letters: Topic, service: Running) -> None:
    await kill(letters, [{"data": 1}])
    name = f"u-{secrets.token_hex(4)}"
    await add_user(letters.http, f"read {letters.name}", name=name)
    async with at_the_pages(service, name) as some:
        page = await some.open(f"topics/{letters.name}/dead")
        assert "You can't see the failures of this topic." in page.text
        assert page.link("Requeue") is page.link("Delete") is None
        await some.open(f"topics/{letters.name}/dead/jobs", 403)


async def test_to_delete_a_kind_takes_the_scope_that_it_takes_in_the_api(fails: Topic) -> None:
    await kill(fails, [{"data": 1}])
    key = await make(fails.http, "no-delete", ["read", "write", "admin"])
    (found,) = accepted(await fails.http.get(f"{fails.path}/failures"))["failures"]
    form = {"cluster": found["cluster"], "typed": fails.name}
    address = f"/admin/topics/{fails.name}/dead/purge"
    refused = await fails.http.post(address, data=form, headers=bearer(key["secret"]))
    assert refused.status_code == 403
    assert "delete" in refused.text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((f"jobs?{query}", 400) for query in ("cluster=x", "age=2h", "error=%00", "after=x", "at=orders")),
        ("jobs?after=0.99999999999999999.1&at=many.01:1", 400),
        ("jobs?after=9.99999999999999999.9999999999999999999", 200),
        (f"jobs?tag={'x' * 1_025}", 400),
        ("requeue?seqs=one", 400),
        (f"requeue?seqs={','.join(['1'] * 1_001)}", 400),
        ("operations/x", 404),
        ("operations/00000000-0000-0000-0000-000000000000", 404),
    ],
    ids=lambda one: str(one)[:40],
)
async def test_what_makes_no_sense_is_a_page_that_says_so(boss: Operator, path: str, status: int) -> None:
    await boss.open(f"topics/orders/dead/{path}", status)
