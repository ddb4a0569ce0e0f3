"""What a client sends sets what the document names, and nothing else; what it is answered tells nothing internal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.api.dialect import Body, Topic, refused
from tests.api.keyring import Services, client, make
from tests.routes import document
from tests.security.objects import Route

if TYPE_CHECKING:
    from tests.conftest import Running

SPEC: Body = document()
REF = "#/components/schemas/"
# What a service keeps of its things, and no client says.
PRIVILEGED = [
    *("id", "seq", "$seq", "state", "status", "deliveries", "attempt", "retry_count", "lease_id", "deadline"),
    *("position", "created_at", "created_by", "scopes", "prefixes", "tenant", "is_admin", "epoch", "password_hash"),
    *("digest", "topic_id", "owner", "version", "actor", "__proto__", "__class__"),
]
MARK = "assigned-by-a-stranger"
# The bodies that take fields which they do not know, as those of the original do, and pass them over.
LENIENT = {"Record", "LogRecord"}


def bodies() -> dict[Route, list[str]]:
    """The names of the schemas of every JSON body, by route."""
    found: dict[Route, list[str]] = {}
    for path, item in SPEC["paths"].items():
        for method, operation in item.items():
            schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            if schema:
                refs = [one["$ref"] for one in schema.get("anyOf", [schema]) if "$ref" in one]
                found[method.upper(), path] = [ref.removeprefix(REF) for ref in refs]
    return found


def reached(names: list[str]) -> set[str]:
    """These schemas, and those that they refer to."""
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name not in seen:
            seen.add(name)
            names += [ref.removeprefix(REF) for ref in re.findall(r'"\$ref": "([^"]+)"', json.dumps(schema_of(name)))]
    return seen


def schema_of(name: str) -> Body:
    found: Body = SPEC["components"]["schemas"][name]
    return found


BODIES = {route: names for route, names in bodies().items() if names}


def test_which_bodies_pass_over_what_they_do_not_know() -> None:
    """All others refuse it; a new body that does not is a choice to be made here."""
    names = set().union(*(reached(list(names)) for names in BODIES.values()))
    objects = {name for name in names if schema_of(name).get("properties")}
    lenient = {name for name in objects if schema_of(name).get("additionalProperties") is not False}
    assert lenient == LENIENT


@pytest.mark.parametrize("route", BODIES, ids=" ".join)
async def test_what_no_client_says_is_refused_or_passed_over(
    service: Running, services: Services, route: Route
) -> None:
    method, path = route
    schema = schema_of(BODIES[route][0])
    example = SPEC["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]["example"]
    extra = {name: MARK for name in PRIVILEGED if name not in schema.get("properties", {})}
    strict = not LENIENT & set(BODIES[route])
    async with client(service, "root") as http:
        for topic in ("mail", "orders"):
            await Topic(http, topic).put()
        key = await make(http, "k")
        url = path.replace("{topic}", "mail").replace("{seq}", "1").replace("{name}", "expiry")
        url = url.replace("{id}", key["id"] if "/keys/" in path else "00000001-0000-8000-8000-000000000001")
        answer = await http.request(method, url, json={**example, **extra})
        if strict:
            assert answer.status_code in {400, 422}, answer.text
            assert "unknown field" in answer.text
        assert answer.status_code < 500
        assert MARK not in answer.text
        assert await holding(services, MARK) == [], "have what a stranger said"
        await Topic(http, "mail").append({"data": 1, "tag": "said-by-a-test"})
        assert "jobs" in await holding(services, "said-by-a-test")


async def holding(services: Services, text: str) -> list[str]:
    """The tables of which a row has this text somewhere."""
    tables = await services.sql(
        "SELECT relname AS name FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace"
        " AND relkind IN ('r', 'p') AND NOT relispartition"
    )
    each = (f"SELECT '{row['name']}' AS name FROM holdfast.{row['name']} t WHERE t::text LIKE $1" for row in tables)
    return [row["name"] for row in await services.sql(" UNION ALL ".join(each), f"%{text}%")]


# What is secret and shown all the same: once, to who has just made it; or as a mask.
SHOWN = {
    ("SecretAnswer", "secret"),  # a new key's, and after a rotation
    ("SqsCredentials", "secret_access_key"),  # likewise
    ("TokenAnswer", "token"),
    ("UserTokenAnswer", "token"),
    ("Webhook", "secret"),  # a mask
    # No secrets: a name for a job and its lease, and a time.
    *((name, "token") for name in ("ClaimedJob", "JobOfTopic", "JobFrame", "Message")),
    *((name, "old_secret_until") for name in ("KeyShown", "KeyAnswer", "SecretAnswer")),
}
SECRET = re.compile(r"hash|digest|passw|salt|epoch|secret|token|credential|dsn|proof|seal", re.IGNORECASE)


def answers() -> Iterator[tuple[str, Any]]:
    names = []
    for item in SPEC["paths"].values():
        for operation in item.values():
            for response in operation["responses"].values():
                names += re.findall(rf'"\$ref": "{REF}(\w+)"', json.dumps(response))
    for name in reached(names):
        for field in schema_of(name).get("properties", {}):
            yield name, field


def test_no_answer_has_a_field_for_a_secret() -> None:
    """And no answer has a field that the document does not name: tests/api/test_exchanges.py holds them against it."""
    found = {(name, field) for name, field in answers() if SECRET.search(field)}
    assert found == SHOWN


async def test_a_client_names_no_method_for_another(service: Running) -> None:
    """Neither header nor parameter turns a route that may be used into one that may not."""
    async with client(service, "root") as http:
        queue = Topic(http, "kept")
        await queue.put()
        for headers in (
            {"x-http-method-override": "DELETE"},
            {"x-http-method": "DELETE"},
            {"x-original-url": "/v0/keys"},
        ):
            answer = await http.get(queue.path, headers=headers)
            assert answer.json()["topic"] == "kept"
        refused(await http.get(queue.path, params={"_method": "DELETE"}), 400, "invalid_request")
        assert (await queue.state())["topic"] == "kept"


async def test_a_field_twice_is_one(service: Running) -> None:
    """What is checked is what is used: of a field that comes twice, the last."""
    async with client(service, "root") as root:
        await Topic(root, "allowed").put()
        await Topic(root, "forbidden").put()
        key = await make(root, "twice", prefixes=["allowed"])
        async with httpx.AsyncClient(
            base_url=service.url,
            headers={"authorization": f"Bearer {key['secret']}", "content-type": "application/json"},
        ) as http:
            statuses = []
            for first, last in (("allowed", "forbidden"), ("forbidden", "allowed")):
                body = f'{{"topic":"{first}","payload":"1","topic":"{last}"}}'
                statuses.append((await http.post("/api/messages", content=body)).status_code)
            assert statuses == [403, 201]
        assert (await Topic(root, "forbidden").state())["count"] == 0
