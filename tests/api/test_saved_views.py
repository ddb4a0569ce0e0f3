"""Views that users and holders of keys save for themselves."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import httpx

from app.features.saved_views.store import MOST
from tests.api.dialect import accepted, refused
from tests.api.keyring import bearer, client, make
from tests.api.people import add_user, token_of
from tests.conftest import Running

LATE = "/admin/topics/orders/jobs?q=state%3Aready+older%3A1h&order=oldest"


async def names(http: httpx.AsyncClient, headers: dict[str, str] | None = None) -> list[str]:
    return [one["name"] for one in accepted(await http.get("/v0/views", headers=headers))["views"]]


async def test_a_view_is_saved_changed_and_deleted(guarded: Running) -> None:
    async with client(guarded, "root") as http:
        own = bearer((await make(http, "mine", ["read"]))["secret"])
        for name in ("späte Aufträge", "late & lost?"):
            path = f"/v0/views/{quote(name)}"
            saved = accepted(await http.put(path, json={"address": LATE}, headers=own))
            assert (saved["name"], saved["address"]) == (name, LATE)
        assert await names(http, own) == ["late & lost?", "späte Aufträge"]
        again = accepted(await http.put("/v0/views/late & lost%3F", json={"address": "/admin/"}, headers=own))
        assert again["address"] == "/admin/"
        assert accepted(await http.delete("/v0/views/späte Aufträge", headers=own))["address"] == LATE
        refused(await http.delete("/v0/views/späte Aufträge", headers=own), 404, "not_found")
        assert await names(http, own) == ["late & lost?"]


async def test_nobody_sees_or_touches_anothers(guarded: Running) -> None:
    async with client(guarded, "root") as http:
        ann = await add_user(http, "read a.*", name="ann")
        key = bearer((await make(http, "theirs", ["read"], prefixes=["b."]))["secret"])
        token = await token_of(http, "ann")
        for headers in (token, key):
            accepted(await http.put("/v0/views/late", json={"address": LATE}, headers=headers))
        accepted(await http.put("/v0/views/mine", json={"address": LATE}, headers=key))
        assert await names(http, token) == ["late"]
        assert await names(http, key) == ["late", "mine"]
        assert await names(http) == []
        refused(await http.delete("/v0/views/mine", headers=token), 404, "not_found")
        assert (await http.delete(f"/api/users/{ann['id']}")).is_success
        kept = await guarded.context.pools.rest.fetch("SELECT owner FROM holdfast.saved_views")
        assert ann["id"] not in {row["owner"] for row in kept}, "they go with their user"


async def test_there_is_an_end_of_them(guarded: Running) -> None:
    async with client(guarded, "root") as http:
        own = bearer((await make(http, "many", ["read"]))["secret"])
        paths = [f"/v0/views/view {n:02}" for n in range(MOST + 3)]
        answers = await asyncio.gather(*(http.put(path, json={"address": LATE}, headers=own) for path in paths))
        assert sorted(answer.status_code for answer in answers) == [200] * MOST + [429] * 3
        assert len(await names(http, own)) == MOST
        kept = (await names(http, own))[0]
        accepted(await http.put(f"/v0/views/{kept}", json={"address": "/admin/"}, headers=own))


ADDRESSES = [
    *("", "/", "admin/", "//evil.example/admin/", "/admin", "/admin/ x", "/admin/\n", "/admin/<b>é", "/admin/\\evil"),
    *("https://evil.example/", "javascript:alert(1)", "/admin/" + "x" * 2_048),
]


async def test_names_and_addresses_that_are_refused(http: httpx.AsyncClient) -> None:
    """An address is one of these pages."""
    for name in (".x", " x", "x%09", "x" * 81, "%0A", "%00"):
        refused(await http.put(f"/v0/views/{name}", json={"address": LATE}), 400, "invalid_request")
    for address in ADDRESSES:
        refused(await http.put("/v0/views/x", json={"address": address}), 400, "invalid_request")
