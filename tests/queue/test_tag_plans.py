"""A claim by tags finds a rare tag by the index of tagged jobs; a claim of all jobs walks what it walked before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import uuid4

from tests.queue import plans, statements
from tests.queue.test_plans import Promise, broken, new_world

# A job in a thousand has the rare tag; every tenth has none.
TAGGED = """
UPDATE holdfast.jobs SET tag = CASE WHEN seq % 1000 = 7 THEN 'rare' WHEN seq % 10 <> 0 THEN 'common' END
"""
COUNT = 20


async def test_a_rare_tag_is_found_among_many_jobs(new_database: Callable[[], Awaitable[str]]) -> None:
    for analyzed in ("before", "after"):
        async with new_world(new_database) as world:
            if analyzed == "before":  # statistics of an empty table
                await world.db.execute("ANALYZE holdfast.jobs")
            await world.fill(50_000)
            await world.db.execute(TAGGED)
            if analyzed == "after":
                await world.db.execute("ANALYZE holdfast.jobs")
            for name in ("claim", "claim_tagged"):
                await plans.prepare(world.db, statements.named(name))
            lanes = ([""], [0], [0], [0])
            slots = ([str(uuid4()) for _ in range(COUNT)], [1] * COUNT, ["w"], [30_000])
            given: tuple[object, ...] = ("busy", *lanes, [], [1], [COUNT], *slots, 3, False, 1 << 26)
            promise = Promise({"jobs_due", "jobs_tagged"}, 30)
            for tags in (["rare"], ["common"], ["none", "rare", "common"]):
                plan = await plans.explain(world.db, statements.named("claim_tagged"), *given, tags)
                found = {name: why for name, why in [("", broken(promise, plan, COUNT, more=4_000))] if why}
                assert found == {}, (analyzed, tags)
                # Due jobs are looked through: a few thousand here, of all tags. Fresh ones are not.
                due = sum(node.get("Rows Removed by Filter", 0) for node in plan.nodes())
                assert due <= 3_000, (analyzed, tags)
            plan = await plans.explain(world.db, statements.named("claim"), *given)
            assert broken(Promise({"jobs_due", "jobs_ready"}, 30), plan, COUNT) == "", analyzed


def test_but_for_how_jobs_are_found_it_is_the_claim_of_all_jobs() -> None:
    claim, tagged = (statements.named(name).text.partition("), seats AS")[2] for name in ("claim", "claim_tagged"))
    assert claim == tagged != ""
