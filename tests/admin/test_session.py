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


@pytest.fixture
def root(http: httpx.AsyncClient) -> httpx.AsyncClient:
    """The API with every right, beside the viewers of a test."""
    return http


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


async def test_a_user_signs_in_where_they_wanted_to_go_and_out_again(service: Running, root: httpx.AsyncClient) -> None:
    boss = (await add_user(root, is_admin=True))["username"]
    async with browser(service, "10.0.0.1") as http:
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
        assert (await http.get("/admin/sign-in")).headers["location"] == "/admin"
        page = await http.get("/admin/horizon")
        is_page(page, 200)
        assert f"<bdi>{boss}</bdi>, admin" in page.text
        out = await http.post("/admin/sign-out", data={"proof": proof_in(page)})
        assert (out.status_code, out.headers["location"]) == (303, "/admin/sign-in")
        is_page(await http.get("/admin/horizon"), 401)
        # Behind a proxy that ends TLS, as the browser's origin tells, the cookie is for TLS alone.
        http.headers["origin"] = service.url.replace("http://", "https://")
        assert "Secure" in (await sign_in(http, boss)).headers["set-cookie"].split("; ")


async def test_an_api_key_signs_in_without_a_name(service: Running, root: httpx.AsyncClient) -> None:
    made = await make(root, "ops", ALL)
    async with browser(service, "10.0.0.3") as http:
        assert (await sign_in(http, "", made["secret"])).status_code == 303
        page = await http.get("/admin/horizon")
        assert "<bdi>ops</bdi>, admin" in page.text
        said = urlsafe_b64decode(http.cookies[SESSION].split(".")[1] + "==").decode()
        assert made["secret"] not in said
        assert digest_of(made["secret"].encode()).hex() not in said
        await root.delete(f"/v0/keys/{made['id']}")
        is_page(await http.get("/admin/horizon"), 401)


async def test_a_wrong_password_says_not_which_part_was_wrong(service: Running, root: httpx.AsyncClient) -> None:
    ann = (await add_user(root, "read"))["username"]
    async with browser(service, "10.0.0.4") as http:
        answers = [await sign_in(http, ann, OTHER), await sign_in(http, "nobody"), await sign_in(http, ann, "")]
        for answer in answers:
            is_page(answer, 401)
            assert "The name or password is wrong." in answer.text
            assert "set-cookie" not in answer.headers
        is_page(await sign_in(http, "", "wrong"), 401)
        is_page(await sign_in(http, "", ""), 401)


async def test_tries_are_counted_by_name_and_address(service: Running, root: httpx.AsyncClient) -> None:
    ann = (await add_user(root, "read"))["username"]
    async with browser(service, "10.0.0.5") as http, browser(service, "10.0.0.6") as other:
        for _ in range(10):
            assert (await sign_in(http, ann, OTHER)).status_code == 401
        is_page(await sign_in(http, ann), 429)
        assert (await sign_in(http, "", "root")).status_code == 303
        assert (await sign_in(other, ann)).status_code == 303


async def test_a_session_is_good_for_pages_alone_until_its_password_or_its_time_is_over(
    service: Running, root: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await add_user(root, is_admin=True)
    boss = made["username"]
    async with browser(service, "10.0.0.7") as http, client(service) as plain:
        await sign_in(http, boss)
        is_page(await http.get("/admin/horizon"), 200)
        session = http.cookies[SESSION]
        for headers in ({"cookie": f"{SESSION}={session}"}, bearer(session)):
            assert (await plain.get("/v0/topics", headers=headers)).status_code == 401
        token = (await plain.post("/api/auth/login", json={"username": boss, "password": PASSWORD})).json()["token"]
        for no_session in (token, "nonsense", "a.b.c", session[:-2] + "xx", ""):
            is_page(await plain.get("/admin/horizon", headers={"cookie": f"{SESSION}={no_session}"}), 401)
        assert (await root.put(f"/api/users/{made['id']}", json={"password": OTHER})).status_code == 200
        is_page(await http.get("/admin/horizon"), 401)
        with monkeypatch.context() as changed:
            changed.setattr("app.http.signin.tokens.PAGES_SECONDS", -10)
            await sign_in(http, boss, OTHER)
        answer = await http.get("/admin/horizon")
        is_page(answer, 401)
        assert "Your session has ended." in answer.text
        assert (await sign_in(http, boss, OTHER)).status_code == 303
        is_page(await http.get("/admin/horizon"), 200)


async def test_a_sign_in_leads_to_pages_alone(service: Running) -> None:
    for back in ("https://evil.example/", "//evil.example", "/admin//", "/v0/topics", "/admin/\\e", ""):
        async with browser(service, "10.1.0.1") as http:
            location = (await sign_in(http, "", "root", back=back)).headers["location"]
        assert re.match(r"/admin(?!.*\\)", location), back


async def test_a_form_of_another_site_or_session_changes_nothing(service: Running) -> None:
    async with browser(service, "10.0.1.1") as one, browser(service, "10.0.1.2") as other:
        for http in (one, other):
            await sign_in(http, "", "root")
        proof, theirs = [proof_in(await http.get("/admin/horizon")) for http in (one, other)]
        for fields in ({"other": "1"}, {"proof": ""}, {"proof": "ü"}, {"proof": theirs}):
            answer = await one.post("/admin/sign-out", data=fields)
            is_page(answer, 403)
            assert "from another session" in answer.text
        is_page(await one.post("/admin/sign-out", json={"proof": theirs}), 400)
        is_page(await one.post("/admin/sign-out", data={"proof": "x" * 70_000}), 413)
        for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):
            is_page(await one.post("/admin/sign-out", data={"proof": proof}, headers=headers), 403)
            is_page(await one.post("/admin/sign-in", data={"secret": "root"}, headers=headers), 403)
        del one.headers["sec-fetch-site"]  # an older browser, which says its origin alone
        for origin in ("https://evil.example", "null"):
            is_page(await one.post("/admin/sign-out", data={"proof": proof}, headers={"origin": origin}), 403)


async def test_a_cookie_that_was_planted_before_is_not_the_session_after(
    service: Running, root: httpx.AsyncClient
) -> None:
    boss = (await add_user(root, is_admin=True))["username"]
    async with browser(service, "10.0.1.3") as attacker, browser(service, "10.0.1.4") as victim:
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


async def test_who_may_not_is_told_so_and_can_sign_out(service: Running, root: httpx.AsyncClient) -> None:
    ann = (await add_user(root, "read"))["username"]
    async with browser(service, "10.0.1.3") as http:
        await sign_in(http, ann)
        page = await http.get("/admin/horizon")
        is_page(page, 403)
        assert f"<bdi>{ann}</bdi>, viewer" in page.text
        assert 'href="/admin/horizon"' not in page.text
        assert (await http.post("/admin/sign-out", data={"proof": proof_in(page)})).status_code == 303
        http.cookies.clear()
        is_page(await http.get("/admin/horizon", headers=basic(ann)), 403)


async def test_in_the_open_pages_are_for_this_machine(empty: Running) -> None:
    async with client(empty) as http:
        page = await http.get("/admin/horizon")
        is_page(page, 200)
        assert "Read only" in page.text
        port = empty.url.rpartition(":")[2]
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
