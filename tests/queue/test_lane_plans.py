"""Plans of what looks at all lanes of a topic, of which there may be a hundred thousand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.queue import plans, statements
from tests.queue.test_plans import new_world

NewDatabase = Callable[[], Awaitable[str]]
LANES = 100_000
MARKED = 1_000
A_LANE = 10  # pages: two descents into indexes that hold the jobs of ten thousand others

IDLE = """
INSERT INTO holdfast.lanes (topic, tenant, priority) SELECT 'busy', 'x' || n, 0 FROM generate_series(1, $1::integer) n
"""


async def test_a_look_at_many_lanes_costs_two_descents_each_however_many_have_marks(new_database: NewDatabase) -> None:
    """No join of lanes with marks, which would compare each with all: a hundred million rows here."""
    async with new_world(new_database) as world:
        await world.prepare()
        await world.fill(10_000)
        await world.db.execute(IDLE, LANES)
        tenants = [f"x{n}" for n in range(1, MARKED)]
        marks = [*tenants, "t1"], [0] * MARKED, [0] * MARKED, [0] * MARKED
        looks = {
            "working": (world.busy.topic.name, 0, 0, *marks, 1_000),
            "probe": ([world.busy.topic.name], [0], [0], [world.busy.topic.name] * MARKED, *marks),
        }
        for name, arguments in looks.items():
            await plans.explain(world.db, statements.named(name), *arguments)
            plan = await plans.explain(world.db, statements.named(name), *arguments)
            assert plan.indexes() == {"jobs_due", "jobs_ready"}
            assert plan.pages() < A_LANE * LANES
            assert not plan.kinds() & {"Hash Join", "Merge Join", "Bitmap Heap Scan"}
            assert max(_rows(node) for node in plan.nodes()) <= LANES + 2 * MARKED, "lanes were compared with marks"


def _rows(node: plans.Node) -> float:
    """Rows that it looked at."""
    removed = node.get("Rows Removed by Join Filter", 0) + node.get("Rows Removed by Filter", 0)
    return float((node["Actual Rows"] + removed) * node["Actual Loops"])
