"""The keys of the environment: what each opens, on which topics, and how it is shown."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import pytest

from app.errors import ConfigurationError
from app.settings import Settings
from tests.api.dialect import accepted, refused

if TYPE_CHECKING:
    from tests.api.conftest import Serve

SECRET = "s3cr3t-0f-th3-0p3r4t0r"
KEYS = {
    "all": SECRET,
    "read": f"{SECRET}-r:read",
    "rw": f"{SECRET}-rw:rw",
    "delete": f"{SECRET}-d:del",
    "admin": f"{SECRET}-a:admin",
    "mail": f"{SECRET}-mail:rw+d+a:mail.|post.",
    "mail, every scope": f"{SECRET}-every::mail.",
    "admin of mail": f"{SECRET}-mail-a:a:mail.",
    "odd": f"{SECRET}&a+b%2Fü=:rw",
}
JOBS = {"records": [{"data": 1}]}
ROUTES = {
    "put": ("PUT", "", {"type": "queue"}),
    "get": ("GET", "", None),
    "append": ("POST", "", JOBS),
    "claim": ("POST", "/claim", {"node": "n"}),
    "purge": ("POST", "/delete", {"before_seq": 1}),
}


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name].partition(':')[0]}"}


@pytest.fixture(scope="module")
async def guarded(serve: Serve) -> str:
    """The address of a service with these keys."""
    return (await serve(api_keys=", ".join(KEYS.values()))).url


@pytest.fixture
async def http(guarded: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that sends no key of its own accord."""
    async with httpx.AsyncClient(base_url=guarded, timeout=35) as client:
        yield client


@pytest.fixture
async def mail(http: httpx.AsyncClient, topic: str) -> AsyncIterator[str]:
    """The path of a queue whose name starts with mail."""
    path = f"/v0/topics/mail.{topic}"
    accepted(await http.put(path, json={"type": "queue"}, headers=bearer("all")))
    yield path
    await http.delete(path, headers=bearer("all"))


async def asked(http: httpx.AsyncClient, route: str, path: str, key: str) -> httpx.Response:
    method, verb, body = ROUTES[route]
    return await http.request(method, path + verb, json=body, headers=bearer(key))


@pytest.mark.parametrize(
    ("key", "opens", "elsewhere"),
    [
        ("all", "put get append claim purge", True),
        ("read", "get", True),
        ("rw", "get append claim", True),
        ("delete", "purge", True),
        ("admin", "put", True),
        ("mail", "put get append claim purge", False),
        ("mail, every scope", "put get append claim purge", False),
        ("admin of mail", "put", False),
    ],
)
async def test_a_key_has_the_scopes_and_topics_that_it_was_given(
    http: httpx.AsyncClient, mail: str, key: str, opens: str, elsewhere: bool
) -> None:
    other = mail.replace("mail.", "email.")
    accepted(await http.put(other, json={"type": "queue"}, headers=bearer("all")))
    for route in ROUTES:
        for path, may in ((mail, True), (other, elsewhere)):
            answer = await asked(http, route, path, key)
            if may and route in opens.split():
                accepted(answer)
            else:
                error = refused(answer, 403, "forbidden")
                assert route not in opens.split() or error["detail"] == {"topic": other.rpartition("/")[2]}
                assert SECRET not in answer.text
    await http.delete(other, headers=bearer("all"))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Bearer {SECRET}x"},
        {"authorization": f"Bearer {SECRET[:-1]}"},
        {"authorization": f"Basic {SECRET}"},
        {"authorization": SECRET},
        {"authorization": b"Bearer \xff\xfe"},
        {"x-api-key": SECRET},
    ],
    ids=lambda headers: str(headers)[:40],
)
async def test_without_a_key_nothing_opens(http: httpx.AsyncClient, mail: str, headers: dict[str, str]) -> None:
    for method, verb, body in ROUTES.values():
        response = await http.request(method, mail + verb, json=body, headers=headers)
        refused(response, 401, "unauthorized")
        assert SECRET not in response.text


async def test_the_key_comes_first(http: httpx.AsyncClient, mail: str) -> None:
    """Before the body, the name and whether there is such a topic: a stranger learns nothing."""
    for path in ("/v0/topics/absent/claim", "/v0/topics/a b/claim"):
        refused(await http.post(path, content=b"{", headers={"content-type": "text/plain"}), 401, "unauthorized")
    refused(await http.get("/v0/topics?cursor=!"), 401, "unauthorized")
    for value in (f"bearer {SECRET}", f"BEARER {SECRET}", f"Bearer  {SECRET}"):  # which is read as headers are
        assert (await http.get(mail, headers={"authorization": value})).status_code == 200


async def test_a_list_shows_a_key_its_own_topics(http: httpx.AsyncClient, topic: str) -> None:
    """And its cursors name no other."""
    names = sorted(f"{start}.{topic}" for start in ("maid", "mail", "mama", "post", "zoo"))
    for name in names:
        accepted(await http.put(f"/v0/topics/{name}", json={}, headers=bearer("all")))
    for key, starts in {"mail": ("mail.", "post."), "mail, every scope": ("mail.",)}.items():
        seen: list[str] = []
        query = {"page_size": "1"}
        while "cursor" not in query or query["cursor"]:
            page = accepted(await http.get("/v0/topics", params=query, headers=bearer(key)))
            seen += [item["topic"] for item in page["topics"]]
            query["cursor"] = page.get("next_cursor", "")
            named = base64.urlsafe_b64decode(query["cursor"]).decode()
            assert not named or any(f'"{start}' in named for start in starts), f"{key} was told of {named}"
        assert all(name.startswith(starts) for name in seen)
        assert [name for name in seen if topic in name] == [name for name in names if name.startswith(starts)]
    for name in names:
        await http.delete(f"/v0/topics/{name}", headers=bearer("all"))


async def test_a_key_names_no_topic_for_dead_letters_that_it_may_not_write_to(
    http: httpx.AsyncClient, mail: str
) -> None:
    own = f"{mail.rpartition('/')[2]}.dlq"
    for key, dead, allowed in (
        ("mail", own, True),
        ("mail", "post.dlq", True),
        ("mail", "other.dlq", False),
        ("mail, every scope", "post.dlq", False),
        ("admin", own, False),  # it may configure, and not write
        ("admin of mail", own, False),
        ("all", "other.dlq", True),
    ):
        answer = await http.put(mail, json={"type": "queue", "dead_letter": dead}, headers=bearer(key))
        if allowed:
            accepted(answer)
        else:
            refused(answer, 403, "forbidden")
    assert accepted(await http.get(mail, headers=bearer("all")))["config"]["dead_letter"] == "other.dlq"


async def test_a_write_that_creates_needs_admin_too(http: httpx.AsyncClient, mail: str) -> None:
    path, body = f"{mail}.new", {**JOBS, "config": {"type": "queue"}}
    error = refused(await http.post(path, json=body, headers=bearer("rw")), 403, "forbidden")
    assert "admin" in error["message"]
    foreign = body | {"config": {"type": "queue", "dead_letter": "other.dlq"}}
    refused(await http.post(path, json=foreign, headers=bearer("mail")), 403, "forbidden")
    refused(await http.get(path, headers=bearer("all")), 404, "topic_not_found")
    assert (await http.post(path, json=body, headers=bearer("mail"))).status_code == 201
    assert (await http.post(path, json=body, headers=bearer("rw"))).status_code == 200  # it is there now
    await http.delete(path, headers=bearer("all"))


async def test_the_query_carries_a_key_for_streams(http: httpx.AsyncClient, mail: str) -> None:
    """Of two the first counts, and each is decoded. No other route takes one: test_first_user.py."""
    for token in (SECRET, f"{SECRET}&token=wrong", f"{SECRET}%26a%2Bb%252F%C3%BC%3D"):
        async with http.stream("GET", f"{mail}/work?node=n&token={token}") as response:
            assert response.status_code == 200
    for token in ("wrong", f"wrong&token={SECRET}", f"{SECRET}%26a%2Bb%2F%C3%BC%3D"):
        refused(await http.get(f"{mail}/work?node=n&token={token}"), 401, "unauthorized")
    refused(await http.get(f"{mail}/work?node=n&token={SECRET}-r"), 403, "forbidden")


@pytest.mark.parametrize(
    "keys",
    [f"{SECRET}:fly", f"{SECRET}:read,{SECRET}-2:rx", f"{SECRET}:READ", f":{SECRET}", f"{SECRET}:read|write", ","],
)
def test_keys_that_make_no_sense_refuse_to_start(keys: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Settings.from_env({"HOLDFAST_API_KEYS": keys})
    assert "HOLDFAST_API_KEYS" in str(error.value)
    assert "\n" not in str(error.value)
    assert SECRET not in str(error.value)
