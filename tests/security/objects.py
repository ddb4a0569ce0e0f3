"""What one party has, each thing beside a name or id that nobody has; and what is asked about it, from the OpenAPI
document."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx

from app.kernel.model import id_of
from tests.api.dialect import Body, Topic, accepted, eventually
from tests.api.keyring import make
from tests.api.messages.client import Messages, done
from tests.api.people import add_user
from tests.api.scopes import FOREIGN, NO_WATCH, TABLE
from tests.routes import document

if TYPE_CHECKING:
    from tests.api.keyring import Services

CANARY = "canary"  # in every name and text of theirs, and in nothing else
TOPIC = f"theirs.{CANARY}"
HOUR_MS = 3_600_000
FAR = 987_654_321
# What the service writes by itself while nobody asks: reapers' runs and figures, and counts that are put together.
BOOKKEEPING = frozenset(
    {"alembic_version", "buckets", "freed_groups", "lanes", "log_state", "new_lanes", "stages", "sweep_runs", "sweeps"}
    | {
        "tallies",
        "depths",
        "depth_looks",
        "topic_reads",
        "topic_stats",
        "topic_stats_progress",
        "topic_stats_staged",
        "writes",
    }
)
NOBODY = "00000000-0000-4000-8000-00000000dead"

Route = tuple[str, str]


def routes() -> list[Route]:
    """Every method and path of the document."""
    return [(method.upper(), path) for path, item in document()["paths"].items() for method in item]


@dataclass(frozen=True, slots=True)
class Thing:
    """By which it is named, and by which nothing is."""

    real: str
    absent: str


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: to what there is, or to what there is not."""

    url: str
    body: Body | None
    names: Mapping[str, str]

    def told(self, answer: httpx.Response) -> tuple[int, str]:
        """The answer, without what tells only which request it is to."""
        text = answer.text
        for kind, name in self.names.items():
            text = text.replace(name, f"<{kind}>")
        return answer.status_code, text


class Objects:
    """Theirs, made by an administrator."""

    def __init__(self, things: Mapping[str, Thing], cursors: Mapping[Route, str], lease: str, ids: list[str]) -> None:
        self.things = things
        self.cursors = cursors
        self.lease = lease  # of the job with seq 1
        self.ids = ids  # of messages

    def kind(self, route: Route, parameter: str) -> str:
        """What a parameter of a path names."""
        _, path = route
        start = path.partition("{")[0]
        if parameter == "id":
            return {
                "/v0/operations/": "operation",
                "/v0/keys/": "api key",
                "/api/messages/": "message",
                "/api/users/": "user",
                "/v0/users/": "listener",
            }[start]
        if parameter == "name":
            return {"/v0/admin/reapers/": "reaper", "/v0/views/": "view"}.get(start, "schedule")
        return {"key": "dedupe", "wid": "watch", "grant_id": "grant"}.get(parameter, parameter)

    def asked(self, route: Route) -> Iterator[Asked]:
        """About what there is; and with each thing in turn one that there is not, the rest as it was."""
        path, row = route[1], TABLE[route]
        parameters = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        kinds = {parameter: self.kind(route, parameter) for parameter in parameters}
        named = set(kinds.values()) | ({"topic"} if FOREIGN in json.dumps(row.body) else set())
        for missing in (None, *sorted(named)):
            names = {
                kind: thing.absent if kind == missing else thing.real
                for kind, thing in self.things.items()
                if kind in named
            }
            url = path
            for parameter, kind in kinds.items():
                url = url.replace(f"{{{parameter}}}", names[kind])
            body: Any = row.body
            if body is not None and "topic" in names:
                body = json.loads(json.dumps(body).replace(FOREIGN, names["topic"]))
            yield Asked(url + row.query, body, names)


async def theirs(root: httpx.AsyncClient, services: Services) -> Objects:
    """A queue with a job in each state, and one thing of every other kind."""
    queue = Topic(root, TOPIC)
    await queue.put(
        max_deliveries=1,
        dead_letter=f"{TOPIC}.dlq",
        lease_ms=HOUR_MS,
        idempotency_window_ms=HOUR_MS,
        webhook={"url": f"https://{CANARY}.example/hook", "on": ["completed"], "secret": f"{CANARY} signs"},
    )
    told: Body = {"tag": CANARY, "tenant": CANARY, "meta": {"m": CANARY}}
    await queue.append(*({"data": CANARY, "group": f"{CANARY}{n}", **told} for n in range(5)))
    held = (await queue.claim(CANARY, max=2))["claimed"]
    await queue.nack(CANARY, [held[1]["$seq"]], errors=[f"no {CANARY}"])  # a dead letter
    await queue.append({"data": CANARY, "dedupe_id": f"{CANARY}-once", "delay_ms": HOUR_MS, **told})
    await Topic(root, f"{TOPIC}.log").put(type="log")
    await Topic(root, f"{TOPIC}.log").append({"data": CANARY})
    topic_id = (await services.sql("SELECT id FROM holdfast.topics WHERE name = $1", TOPIC))[0]["id"]
    ids = [id_of(topic_id, seq) for seq in (1, 2, 3)]
    schedule = {"topic": TOPIC, "cron": "0 0 1 1 *", "record": {"data": CANARY}}
    for name in (f"{CANARY}-nightly", f"{CANARY}-weekly"):
        accepted(await root.put(f"/v0/schedules/{name}", json=schedule))
    user = await add_user(root, f"read {TOPIC}", name=CANARY)
    granted = done(await root.get(f"/api/users/{user['id']}/grants"))["items"][0]["id"]
    other = await make(root, CANARY, prefixes=[TOPIC])
    await make(root, f"{CANARY}-too", prefixes=[TOPIC])
    async with httpx.AsyncClient(
        base_url=root.base_url, headers={"authorization": f"Bearer {other['secret']}"}
    ) as owner:
        accepted(await owner.put(f"/v0/views/{CANARY}-view", json={"address": f"/admin/topics/{TOPIC}/jobs"}))
        watch = accepted(await owner.post("/v0/watch", json={"topics": {f"{TOPIC}.log": {}}}))["wid"]
        begun = await owner.post(f"/v0/topics/{TOPIC}/requeue", json={"filter": {"error": "none such"}})
        operation = done(begun, 202)

    async def grouped() -> Body | None:
        found = accepted(await root.get(f"/v0/topics/{TOPIC}/failures"))["failures"]
        return found[0] if found else None

    async def over() -> bool:
        return bool(accepted(await root.get(f"/v0/operations/{operation['id']}"))["state"] == "done")

    await eventually(over)
    cluster = (await eventually(grouped))["cluster"]  # type: ignore[index]
    await Messages(root, TOPIC).put(CANARY)
    things = {
        "topic": Thing(TOPIC, "theirs.of-nobody"),
        "seq": Thing("1", str(FAR)),
        "message": Thing(ids[0], id_of(topic_id, FAR)),
        "cluster": Thing(cluster, "0" * 16),
        "operation": Thing(operation["id"], NOBODY),
        "watch": Thing(watch, NO_WATCH),
        "api key": Thing(other["id"], "key_" + "0" * 16),
        "schedule": Thing(f"{CANARY}-nightly", "of-nobody"),
        "view": Thing(f"{CANARY}-view", "of-nobody"),
        "reaper": Thing("expiry", "of-nobody"),
        "user": Thing(user["id"], NOBODY),
        "grant": Thing(granted, NOBODY),
        "listener": Thing(f"{CANARY}-listens", "of-nobody"),
        "dedupe": Thing(f"{CANARY}-once", "of-nobody"),
        "group": Thing(f"{CANARY}1", "of-nobody"),
    }
    return Objects(things, await _cursors(root), held[0]["lease_id"], ids)


async def _cursors(root: httpx.AsyncClient) -> dict[Route, str]:
    """Where the second page begins, of every list that has pages: an administrator's cursors, which name what is on the
    first."""
    found = {}
    for (method, path), size in itertools.product(routes(), ("page_size", "limit")):
        if method != "GET" or "{" in path:
            continue
        parameters = {one["name"] for one in document()["paths"][path]["get"].get("parameters", ())}
        if {"cursor", size} <= parameters:
            query = {size: "1"} | ({"topic": TOPIC} if "topic" in parameters else {})
            answer = await root.get(path, params=query)
            assert answer.status_code == 200, answer.text
            cursor = answer.json().get("next_cursor")
            if cursor:
                found["GET", path] = cursor
    assert {path for _, path in found} >= {"/v0/topics", "/v0/schedules", "/v0/keys", "/v0/admin/audit"}
    return found


async def state(db: asyncpg.Connection[asyncpg.Record]) -> dict[str, str]:
    """A checksum of every table, but for those that the service writes by itself."""
    tables = await db.fetch(
        "SELECT relname AS name FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace"
        " AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY 1"
    )
    each = (
        f"SELECT '{row['name']}' AS name, count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)), 0) AS rows"
        f" FROM holdfast.{row['name']} t"
        for row in tables
        if row["name"] not in BOOKKEEPING
    )
    return {row["name"]: row["rows"] for row in await db.fetch(" UNION ALL ".join(each))}
