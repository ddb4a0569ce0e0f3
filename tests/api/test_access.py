"""API keys: what each scope opens, on which topics, and that no secret comes back."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import pytest

from app.base.keys import digest_of
from app.errors import ConfigurationError
from app.settings import Settings
from tests.api.dialect import Body, accepted, refused

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running

SECRET = "s3cr3t-0f-th3-0p3r4t0r"
KEYS = {
    "all": SECRET,
    "read": f"{SECRET}-r:read",
    "write": f"{SECRET}-w:w",
    "rw": f"{SECRET}-rw:rw",
    "delete": f"{SECRET}-d:del",
    "admin": f"{SECRET}-a:admin",
    "mail": f"{SECRET}-mail:rw+d+a:mail.|post.",
    "mail, every scope": f"{SECRET}-every::mail.",
    "mail, read": f"{SECRET}-mail-r:r:mail.",
    "admin of mail": f"{SECRET}-mail-a:a:mail.",
    "odd": f"{SECRET}&a+b%2Fü=:rw",
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


JOBS: Body = {"records": [{"data": 1}]}
ROUTES: dict[str, tuple[str, str, Body | None, set[str]]] = {
    "PUT": ("PUT", "", {"type": "queue"}, {"admin"}),
    "GET": ("GET", "", None, {"read"}),
    "DELETE": ("DELETE", "", None, {"delete"}),
    "append": ("POST", "", JOBS, {"write"}),
    "diff": ("POST", "/diff", {}, {"read"}),
    "delete": ("POST", "/delete", {"before_seq": 1}, {"delete"}),
    "claim": ("POST", "/claim", {"node": "n"}, {"read", "write"}),
    "ack": ("POST", "/ack", {"node": "n", "seqs": []}, {"write"}),
    "nack": ("POST", "/nack", {"node": "n", "seqs": []}, {"write"}),
    "fail": ("POST", "/fail", {"node": "n", "seqs": []}, {"write"}),
    "extend": ("POST", "/extend", {"node": "n", "seqs": [], "lease_ms": 1000}, {"write"}),
    "work": ("GET", "/work?node=n", None, {"read", "write"}),
}
SCOPES = {"all": {"read", "write", "delete", "admin"}, "rw": {"read", "write"}}


async def asked(http: httpx.AsyncClient, route: str, path: str, headers: dict[str, str]) -> httpx.Response:
    """The answer; of a stream, once it is open."""
    method, verb, body, _ = ROUTES[route]
    request = http.build_request(method, path + verb, json=body, headers=headers)
    if body is None:
        request = http.build_request(method, path + verb, headers=headers)
    response = await http.send(request, stream=True)
    if response.status_code != 200 or route != "work":
        await response.aread()
    await response.aclose()
    return response


@pytest.mark.parametrize("key", ["all", "read", "write", "rw", "delete", "admin"])
@pytest.mark.parametrize("route", ROUTES)
async def test_a_route_opens_to_the_scopes_that_it_needs(
    http: httpx.AsyncClient, mail: str, route: str, key: str
) -> None:
    response = await asked(http, route, mail, bearer(key))
    missing = ROUTES[route][3] - SCOPES.get(key, {key})
    if not missing:
        assert response.status_code == 200, response.text
        return
    error = refused(response, 403, "forbidden")
    assert all(scope in error["message"] for scope in missing)
    assert SECRET not in response.text


@pytest.mark.parametrize("route", ROUTES)
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
async def test_without_a_key_nothing_opens(
    http: httpx.AsyncClient, mail: str, route: str, headers: dict[str, str]
) -> None:
    response = await asked(http, route, mail, headers)
    refused(response, 401, "unauthorized")
    assert SECRET not in response.text


async def test_the_key_comes_first(http: httpx.AsyncClient) -> None:
    """Before the body, the name and whether there is such a topic: a stranger learns nothing."""
    for path in ("/v0/topics/absent/claim", "/v0/topics/a b/claim"):
        refused(await http.post(path, content=b"{", headers={"content-type": "text/plain"}), 401, "unauthorized")
    refused(await http.get("/v0/topics?cursor=!"), 401, "unauthorized")


async def test_the_scheme_is_read_as_headers_are(http: httpx.AsyncClient, mail: str) -> None:
    for value in (f"bearer {SECRET}", f"BEARER {SECRET}", f"Bearer  {SECRET}"):
        assert (await http.get(mail, headers={"authorization": value})).status_code == 200


@pytest.mark.parametrize("route", ROUTES)
async def test_a_key_reaches_the_topics_of_its_prefixes_only(
    http: httpx.AsyncClient, mail: str, topic: str, route: str
) -> None:
    other = f"/v0/topics/email.{topic}"
    accepted(await http.put(other, json={"type": "queue"}, headers=bearer("all")))
    for key in ("mail", "mail, every scope"):
        error = refused(await asked(http, route, other, bearer(key)), 403, "forbidden")
        assert error["detail"] == {"topic": f"email.{topic}"}
    assert (await asked(http, route, mail, bearer("mail"))).status_code == 200
    post = mail.replace("mail.", "post.")
    assert (await asked(http, "PUT", post, bearer("mail"))).status_code == 201
    refused(await asked(http, "PUT", post, bearer("mail, every scope")), 403, "forbidden")
    assert (await asked(http, "DELETE", post, bearer("mail"))).status_code == 200
    await http.delete(other, headers=bearer("all"))


async def test_a_list_shows_a_key_its_own_topics(http: httpx.AsyncClient, topic: str) -> None:
    """And its cursors name no other."""
    names = sorted(f"{start}.{topic}.{i}" for start in ("mail", "mama", "maid", "post", "zoo") for i in range(3))
    for name in names:
        accepted(await http.put(f"/v0/topics/{name}", json={}, headers=bearer("all")))
    try:
        for key, starts in {"mail": ("mail.", "post."), "mail, read": ("mail.",), "all": ("",)}.items():
            seen: list[str] = []
            cursor = ""
            while True:
                params = {"page_size": "1", **({"cursor": cursor} if cursor else {})}
                page = accepted(await http.get("/v0/topics", params=params, headers=bearer(key)))
                seen += [item["topic"] for item in page["topics"]]
                cursor = page.get("next_cursor", "")
                if not cursor:
                    break
                named = base64.urlsafe_b64decode(cursor).decode()
                assert any(f'"{start}' in named for start in starts), f"{key} was told of {named}"
            assert all(name.startswith(starts) for name in seen)
            assert [name for name in seen if topic in name] == [name for name in names if name.startswith(starts)]
    finally:
        for name in names:
            await http.delete(f"/v0/topics/{name}", headers=bearer("all"))


async def test_the_list_needs_read(http: httpx.AsyncClient) -> None:
    for key in ("write", "delete", "admin", "admin of mail"):
        refused(await http.get("/v0/topics", headers=bearer(key)), 403, "forbidden")
    refused(await http.get("/v0/topics"), 401, "unauthorized")
    refused(await http.get(f"/v0/topics?token={SECRET}"), 401, "unauthorized")


async def test_a_key_names_no_topic_for_dead_letters_that_it_may_not_write_to(
    http: httpx.AsyncClient, mail: str
) -> None:
    for key, dead, allowed in (
        ("mail", f"{mail.rpartition('/')[2]}.dlq", True),
        ("mail", "post.dlq", True),
        ("mail", "other.dlq", False),
        ("mail, every scope", "post.dlq", False),
        ("admin", f"{mail.rpartition('/')[2]}.dlq", False),  # it may configure, and not write
        ("admin of mail", f"{mail.rpartition('/')[2]}.dlq", False),
        ("all", "other.dlq", True),
    ):
        answer = await http.put(mail, json={"type": "queue", "dead_letter": dead}, headers=bearer(key))
        if allowed:
            assert answer.status_code == 200, answer.text
        else:
            refused(answer, 403, "forbidden")
    assert accepted(await http.get(mail, headers=bearer("all")))["config"]["dead_letter"] == "other.dlq"


async def test_a_write_that_creates_needs_admin_too(http: httpx.AsyncClient, mail: str) -> None:
    path, body = f"{mail}.new", {"records": [{"data": 1}], "config": {"type": "queue"}}
    for key in ("rw", "write"):
        error = refused(await http.post(path, json=body, headers=bearer(key)), 403, "forbidden")
        assert "admin" in error["message"]
    foreign = body | {"config": {"type": "queue", "dead_letter": "other.dlq"}}
    refused(await http.post(path, json=foreign, headers=bearer("mail")), 403, "forbidden")
    refused(await http.get(path, headers=bearer("all")), 404, "topic_not_found")
    assert (await http.post(path, json=body, headers=bearer("mail"))).status_code == 201
    assert (await http.post(path, json=body, headers=bearer("rw"))).status_code == 200  # it is there now
    await http.delete(path, headers=bearer("all"))


async def test_the_query_carries_a_key_for_streams_only(http: httpx.AsyncClient, mail: str) -> None:
    async with http.stream("GET", f"{mail}/work", params={"node": "n", "token": SECRET}) as response:
        assert response.status_code == 200
    for route in set(ROUTES) - {"work"}:
        method, verb, body, _ = ROUTES[route]
        answer = await http.request(method, mail + verb, params={"token": SECRET}, json=body)
        refused(answer, 401, "unauthorized")
    refused(await http.get(f"{mail}/work?node=n&token=wrong"), 401, "unauthorized")
    refused(await http.get(f"{mail}/work?node=n&token={SECRET}-r"), 403, "forbidden")


async def test_of_two_keys_in_a_query_the_first_counts(http: httpx.AsyncClient, mail: str) -> None:
    async with http.stream("GET", f"{mail}/work?node=n&token={SECRET}&token=wrong") as response:
        assert response.status_code == 200
    refused(await http.get(f"{mail}/work?node=n&token=wrong&token={SECRET}"), 401, "unauthorized")


async def test_a_key_in_a_query_is_decoded(http: httpx.AsyncClient, mail: str) -> None:
    async with http.stream("GET", f"{mail}/work?node=n&token={SECRET}%26a%2Bb%252F%C3%BC%3D") as response:
        assert response.status_code == 200
    refused(await http.get(f"{mail}/work?node=n&token={SECRET}%26a%2Bb%2F%C3%BC%3D"), 401, "unauthorized")


async def test_a_keys_digest_is_compared_in_constant_time(
    http: httpx.AsyncClient, mail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        seen.append((one, other))
        return False

    monkeypatch.setattr("app.http.signin.directory.hmac.compare_digest", compare)
    refused(await http.get(mail, headers=bearer("read")), 401, "unauthorized")
    assert (digest_of(f"{SECRET}-r".encode()),) * 2 in seen
    monkeypatch.undo()
    assert (await http.get(mail, headers=bearer("read"))).status_code == 200


async def test_health_needs_no_key(http: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/v0/health", "/readyz", "/v0/ready"):
        assert (await http.get(path)).status_code == 200


async def test_without_keys_everything_is_open_and_credentials_are_ignored(service: Running) -> None:
    async with httpx.AsyncClient(base_url=service.url) as http:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic YWRtaW46c2VjcmV0"}):
            assert (await http.get("/v0/topics?page_size=1", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "keys",
    [
        f"{SECRET}:fly",
        f"{SECRET}:read,{SECRET}-2:rx",
        f"{SECRET}:READ",
        f":{SECRET}",
        f"{SECRET}:read|write",
        ",",
    ],
)
def test_keys_that_make_no_sense_refuse_to_start(keys: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        Settings.from_env({"HOLDFAST_API_KEYS": keys})
    assert "HOLDFAST_API_KEYS" in str(error.value)
    assert "\n" not in str(error.value)
    assert SECRET not in str(error.value)


def test_settings_do_not_show_their_secrets() -> None:
    settings = Settings.from_env(
        {"HOLDFAST_API_KEYS": f"{SECRET}:read", "HOLDFAST_DATABASE_URL": "postgresql://u:pw@h/d"}
    )
    for text in (repr(settings), str(settings), settings.model_dump_json()):
        assert SECRET not in text
        assert "pw@" not in text
