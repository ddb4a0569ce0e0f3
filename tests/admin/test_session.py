"""Signing in to the admin pages: who gets in, what they may do, and what another site's page can't."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from app.base.keys import digest_of
from app.http.credentials import SESSION
from tests.admin.test_pages import is_page
from tests.api.conftest import Serve
from tests.api.keyring import ALL, Services, bearer, client, make
from tests.api.people import PASSWORD, add_user, basic
from tests.conftest import Running

OTHER = "another password entirely"


@pytest.fixture(scope="module")
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    return await Services.make(serve, new_database)


@pytest.fixture(scope="module")
async def guarded(services: Services) -> Running:
    """A service that needs sign-in, whose proxy says who comes, so that each test has tries of its own."""
    return await services.start(api_keys="root", bcrypt_cost=10, trusted_proxies="127.0.0.0/8")


@pytest.fixture
async def root(guarded: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(guarded, "root") as http:
        yield http


@asynccontextmanager
async def browser(service: Running, address: str) -> AsyncIterator[httpx.AsyncClient]:
    """What keeps cookies, and sends what browsers do of themselves."""
    headers = {"origin": service.url, "sec-fetch-site": "same-origin", "x-real-ip": address}
    async with httpx.AsyncClient(base_url=service.url, headers=headers, timeout=35) as http:
        yield http


async def sign_in(http: httpx.AsyncClient, name: str, secret: str = PASSWORD, **fields: str) -> httpx.Response:
    return await http.post("/admin/sign-in", data={"name": name, "secret": secret, **fields})


def proof_in(page: httpx.Response) -> str:
    found = re.search(r'name="proof" value="([0-9a-f]{64})"', page.text)
    assert found is not None
    return found[1]


async def test_a_user_signs_in_where_they_wanted_to_go_and_out_again(guarded: Running, root: httpx.AsyncClient) -> None:
    boss = (await add_user(root, is_admin=True))["username"]
    async with browser(guarded, "10.0.0.1") as http:
        asked = await http.get("/admin/horizon")
        is_page(asked, 401)
        assert 'name="back" value="/admin/horizon"' in asked.text
        assert asked.headers["www-authenticate"] == "Bearer"  # Basic would open a window of the browser's own
        assert "dead rows" not in asked.text.lower()
        answer = await sign_in(http, boss, back="/admin/horizon")
        assert (answer.status_code, answer.headers["location"]) == (303, "/admin/horizon")
        cookie = answer.headers["set-cookie"]
        assert {"HttpOnly", "Path=/admin", "SameSite=lax"} <= set(cookie.split("; "))
        assert "Secure" not in cookie
        page = await http.get("/admin/horizon")
        is_page(page, 200)
        assert f"<bdi>{boss}</bdi>, admin" in page.text
        out = await http.post("/admin/sign-out", data={"proof": proof_in(page)})
        assert (out.status_code, out.headers["location"]) == (303, "/admin/sign-in")
        is_page(await http.get("/admin/horizon"), 401)


async def test_behind_tls_the_cookie_is_for_tls_alone(guarded: Running, root: httpx.AsyncClient) -> None:
    boss = (await add_user(root, is_admin=True))["username"]
    host = guarded.url.removeprefix("http://")
    async with browser(guarded, "10.0.0.2") as http:
        http.headers["origin"] = f"https://{host}"  # a proxy ends TLS; the browser's origin tells
        assert "Secure" in (await sign_in(http, boss)).headers["set-cookie"].split("; ")


async def test_an_api_key_signs_in_without_a_name(guarded: Running, root: httpx.AsyncClient) -> None:
    made = await make(root, "ops", ALL)
    async with browser(guarded, "10.0.0.3") as http:
        assert (await sign_in(http, "", made["secret"])).status_code == 303
        page = await http.get("/admin/horizon")
        assert "<bdi>ops</bdi>, admin" in page.text
        said = urlsafe_b64decode(http.cookies[SESSION].split(".")[1] + "==").decode()
        assert made["secret"] not in said
        assert digest_of(made["secret"].encode()).hex() not in said
        await root.delete(f"/v0/keys/{made['id']}")
        is_page(await http.get("/admin/horizon"), 401)


async def test_a_wrong_password_says_not_which_part_was_wrong(guarded: Running, root: httpx.AsyncClient) -> None:
    ann = (await add_user(root, "read"))["username"]
    async with browser(guarded, "10.0.0.4") as http:
        answers = [await sign_in(http, ann, OTHER), await sign_in(http, "nobody"), await sign_in(http, ann, "")]
        for answer in answers:
            is_page(answer, 401)
            assert "Name and password don&#39;t match." in answer.text
            assert "set-cookie" not in answer.headers
        is_page(await sign_in(http, "", "wrong"), 401)
        is_page(await sign_in(http, "", ""), 401)


async def test_ten_tries_a_minute_of_a_name_from_an_address(guarded: Running, root: httpx.AsyncClient) -> None:
    ann = (await add_user(root, "read"))["username"]
    async with browser(guarded, "10.0.0.5") as http:
        for _ in range(10):
            assert (await sign_in(http, ann, OTHER)).status_code == 401
        late = await sign_in(http, ann)
        is_page(late, 429)
        assert (await sign_in(http, "", "root")).status_code == 303
    async with browser(guarded, "10.0.0.6") as other:
        assert (await sign_in(other, ann)).status_code == 303


async def test_a_session_ends_with_its_password(guarded: Running, root: httpx.AsyncClient) -> None:
    made = await add_user(root, is_admin=True)
    async with browser(guarded, "10.0.0.7") as http:
        await sign_in(http, made["username"])
        is_page(await http.get("/admin/horizon"), 200)
        assert (await root.put(f"/api/users/{made['id']}", json={"password": OTHER})).status_code == 200
        is_page(await http.get("/admin/horizon"), 401)


async def test_a_session_is_good_for_pages_and_for_nothing_else(guarded: Running, root: httpx.AsyncClient) -> None:
    boss = (await add_user(root, is_admin=True))["username"]
    async with browser(guarded, "10.0.0.8") as http:
        await sign_in(http, boss)
        session = http.cookies[SESSION]
    async with client(guarded) as http:
        for headers in ({"cookie": f"{SESSION}={session}"}, bearer(session)):
            assert (await http.get("/v0/topics", headers=headers)).status_code == 401
        token = (await http.post("/api/auth/login", json={"username": boss, "password": PASSWORD})).json()["token"]
        for no_session in (token, "nonsense", "a.b.c", session[:-2] + "xx", ""):
            answer = await http.get("/admin/horizon", headers={"cookie": f"{SESSION}={no_session}"})
            is_page(answer, 401)


async def test_who_has_a_session_that_is_over_can_sign_in_again(
    guarded: Running, root: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss = (await add_user(root, is_admin=True))["username"]
    async with browser(guarded, "10.0.1.4") as http:
        with monkeypatch.context() as changed:
            changed.setattr("app.http.signin.tokens.PAGES_SECONDS", -10)
            await sign_in(http, boss)
        answer = await http.get("/admin/horizon")
        is_page(answer, 401)
        assert "This session is over." in answer.text
        assert (await sign_in(http, boss)).status_code == 303
        is_page(await http.get("/admin/horizon"), 200)


@pytest.mark.parametrize(
    "back", ["https://evil.example/", "//evil.example", "/admin//", "/v0/topics", "/admin/\\e", ""]
)
async def test_a_sign_in_leads_to_pages_alone(guarded: Running, root: httpx.AsyncClient, back: str) -> None:
    async with browser(guarded, f"10.1.0.{len(back) + 1}") as http:
        location = (await sign_in(http, "", "root", back=back)).headers["location"]
    assert location.startswith("/admin")
    assert not location.startswith("//")
    assert "\\" not in location


async def test_another_sites_page_changes_nothing(guarded: Running, root: httpx.AsyncClient) -> None:
    async with browser(guarded, "10.0.0.9") as http:
        await sign_in(http, "", "root")
        proof = proof_in(await http.get("/admin/horizon"))
        for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):
            is_page(await http.post("/admin/sign-out", data={"proof": proof}, headers=headers), 403)
            is_page(await http.post("/admin/sign-in", data={"secret": "root"}, headers=headers), 403)
        del http.headers["sec-fetch-site"]  # an older browser, which says its origin alone
        evil = {"origin": "https://evil.example"}
        is_page(await http.post("/admin/sign-out", data={"proof": proof}, headers=evil), 403)
        is_page(await http.post("/admin/sign-out", data={"proof": proof}, headers={"origin": "null"}), 403)


async def test_a_form_of_no_session_or_another_one_is_refused(guarded: Running, root: httpx.AsyncClient) -> None:
    async with browser(guarded, "10.0.1.1") as one, browser(guarded, "10.0.1.2") as other:
        for http in (one, other):
            await sign_in(http, "", "root")
        theirs = proof_in(await other.get("/admin/horizon"))
        for fields in ({"other": "1"}, {"proof": ""}, {"proof": "ü"}, {"proof": theirs}):
            answer = await one.post("/admin/sign-out", data=fields)
            is_page(answer, 403)
            assert "not of your session" in answer.text
        is_page(await one.post("/admin/sign-out", json={"proof": theirs}), 400)
        is_page(await one.post("/admin/sign-out", data={"proof": "x" * 70_000}), 413)


async def test_a_cookie_that_was_planted_before_is_not_the_session_after(
    guarded: Running, root: httpx.AsyncClient
) -> None:
    boss = (await add_user(root, is_admin=True))["username"]
    async with browser(guarded, "10.0.1.3") as attacker, browser(guarded, "10.0.1.4") as victim:
        await sign_in(attacker, "", "root")
        planted = attacker.cookies[SESSION]
        for cookie in (planted, "chosen-by-the-attacker"):
            victim.cookies.clear()
            victim.cookies.set(SESSION, cookie, path="/admin")
            await sign_in(victim, boss)
            sessions = {one.value or "" for one in victim.cookies.jar if one.name == SESSION and one.domain}
            own = next(one for one in sessions if one != cookie)
            victim.cookies.clear()
            victim.cookies.set(SESSION, own, path="/admin")
            assert f"<bdi>{boss}</bdi>, admin" in (await victim.get("/admin/horizon")).text
            theirs = proof_in(await attacker.get("/admin/horizon"))
            is_page(await victim.post("/admin/sign-out", data={"proof": theirs}), 403)
        assert boss not in (await attacker.get("/admin/horizon")).text


async def test_who_may_not_is_told_so_and_can_sign_out(guarded: Running, root: httpx.AsyncClient) -> None:
    ann = (await add_user(root, "read"))["username"]
    async with browser(guarded, "10.0.1.3") as http:
        await sign_in(http, ann)
        page = await http.get("/admin/horizon")
        is_page(page, 403)
        assert f"<bdi>{ann}</bdi>, viewer" in page.text
        assert 'href="/admin/horizon"' not in page.text
        assert (await http.post("/admin/sign-out", data={"proof": proof_in(page)})).status_code == 303
    async with client(guarded) as http:
        is_page(await http.get("/admin/horizon", headers=basic(ann)), 403)


async def test_in_the_open_pages_are_for_this_machine(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> None:
    services = await Services.make(serve, new_database)
    service = await services.start()
    async with client(service) as http:
        page = await http.get("/admin/horizon")
        is_page(page, 200)
        assert "Read only" in page.text
        port = service.url.rpartition(":")[2]
        for host in (f"localhost:{port}", f"[::1]:{port}", "127.0.0.1"):
            is_page(await http.get("/admin/horizon", headers={"host": host}), 200)
        # A name of somebody else's that leads here, so that their page may read ours.
        for host in ("rebound.example", f"rebound.example:{port}", "localhost.example", "[", ""):
            is_page(await http.get("/admin/horizon", headers={"host": host}), 403)
        # A proxy of this machine, which lets others in.
        for header in ("x-forwarded-for", "x-real-ip", "forwarded"):
            is_page(await http.get("/admin/horizon", headers={header: "for=192.0.2.7"}), 403)


async def test_beyond_this_machine_pages_are_not_open(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> None:
    services = await Services.make(serve, new_database)
    service = await services.start(host="0.0.0.0", allow_insecure_no_auth=True)
    async with client(service) as http:
        assert (await http.get("/v0/topics")).status_code == 200
        is_page(await http.get("/admin/horizon"), 403)
