"""/in: what browsers and other services send becomes a job as it is, or is refused for what is wrong with it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from urllib.parse import quote

import httpx
import pytest

from app.features.ingest.forms import MAX_FIELDS, MAX_FILES
from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.keyring import Services, bearer, client, make
from tests.api.people import add_user, basic, token_of
from tests.conftest import Running
from tests.queue.calls import Session

FORM = {"content-type": "application/x-www-form-urlencoded"}
TEXT = {"content-type": "text/plain"}
JSON = {"content-type": "application/json"}
EURO = "€uro \U0001f600.txt"


def taken(answer: httpx.Response) -> Body:
    assert answer.status_code == 202, answer.text
    body: Body = answer.json()
    assert answer.headers["x-job-id"] == body["id"]
    assert set(body) == {"id", "topic", "seq", "duplicate"}
    return body


async def sent(queue: Topic, content: bytes, headers: dict[str, str], more: str = "") -> Body:
    """The job that this became, as a worker gets it."""
    body = taken(await queue.http.post(f"/in/{queue.name}{more}", content=content, headers=headers))
    job = await queue.take()
    assert (job["$seq"], body["topic"], body["duplicate"]) == (body["seq"], queue.name, False)
    return job


def multipart(*parts: tuple[str, bytes], boundary: str = "b0") -> tuple[bytes, dict[str, str]]:
    """A body and its header; each part has its own headers, as they stand."""
    text = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), head.encode(), data) for head, data in parts)
    return text + f"--{boundary}--\r\n".encode(), {"content-type": f"multipart/form-data; boundary={boundary}"}


def part(name: str, value: bytes, filename: str | None = None, kind: str = "") -> tuple[str, bytes]:
    file = "" if filename is None else f'; filename="{filename}"'
    return f'Content-Disposition: form-data; name="{name}"{file}' + (f"\r\nContent-Type: {kind}" if kind else ""), value


async def test_json_stays_as_it_came(queue: Topic) -> None:
    text = b'{ "a" : [1.0, 1e2],\n "b": "\xc3\xa9" }'
    body = taken(await queue.http.post(f"/in/{queue.name}", content=text, headers=JSON))
    message = (await queue.http.get(f"/api/messages/{body['id']}")).json()
    assert message["payload"].encode() == text
    assert (await queue.take())["data"] == {"a": [1.0, 100.0], "b": "é"}


async def test_a_form_is_an_object_of_strings(queue: Topic) -> None:
    job = await sent(queue, b"name=Ada+L&tag=a&tag=b&empty=&%C3%A9=%E2%82%AC", FORM)
    assert job["data"] == {"name": "Ada L", "tag": ["a", "b"], "empty": "", "é": "€"}
    assert (await sent(queue, b"", FORM))["data"] == {}


async def test_a_multipart_form_has_its_files_with_their_names(queue: Topic) -> None:
    body, headers = multipart(
        part("note", "für".encode()),
        part("scan", b"\x00\xff", EURO, "image/png"),
        part("scan", b"", "empty.bin"),
        part("note", b"2"),
    )
    assert (await sent(queue, body, headers))["data"] == {
        "note": ["für", "2"],
        "scan": [
            {"filename": EURO, "content_type": "image/png", "$base64": base64.b64encode(b"\x00\xff").decode()},
            {"filename": "empty.bin", "content_type": "application/octet-stream", "$base64": ""},
        ],
    }


async def test_what_a_real_client_sends_is_understood(queue: Topic) -> None:
    files = {"f": ('we"ird\r\n.txt', b"--b0--\r\n", "text/plain")}
    taken(await queue.http.post(f"/in/{queue.name}", data={"a": ["1", "2"]}, files=files))
    data = (await queue.take())["data"]
    assert (data["a"], base64.b64decode(data["f"]["$base64"])) == (["1", "2"], b"--b0--\r\n")
    job = await sent(queue, "grüß dich".encode(), {"content-type": "Text/Plain; charset=UTF-8"})
    assert job["data"] == "grüß dich", "a text is a string"
    refused(await queue.http.post(f"/in/{queue.name}", content=b"\xff", headers=TEXT), 400, "invalid_request")


async def test_parameters_are_the_jobs_params(queue: Topic) -> None:
    job = await sent(queue, b"1", JSON, "/g?a=1&b=x&a=2&empty=&group=mine")
    assert job["meta"] == {"params": {"a": ["1", "2"], "b": "x", "empty": "", "group": "g"}}
    assert job["group"] == "g"
    assert "meta" not in await sent(queue, b"1", JSON)


async def test_a_token_in_the_address_is_not_kept(
    queue: Topic, connect: Callable[[], Awaitable[Session]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "app")
    db = await connect()
    for more, meta in (("?token=s3cret&a=1&token=s3cret2", {"params": {"a": "1"}}), ("?%74oken=s3cret", None)):
        body = taken(await queue.http.post(f"/in/{queue.name}{more}", content=b"1", headers=JSON))
        [row] = await db.fetch("SELECT j::text AS text FROM holdfast.jobs j WHERE topic = $1", queue.name)
        assert "s3cret" not in row["text"]
        job = await queue.take()
        assert (job["$seq"], job.get("meta")) == (body["seq"], meta)
        await queue.ack("n", [body["seq"]])
    assert not [one for one in caplog.records if one.name.startswith("app") and "s3cret" in one.getMessage()]
    for query in ("?" + "&".join(f"p{i}=1" for i in range(65)), "?a=" + "%01" * 2_800, "?a=%00"):
        answer = await queue.http.post(f"/in/{queue.name}{query}", content=b"1", headers=JSON)
        refused(answer, 400, "invalid_request")


async def test_of_one_groups_repeated_submits_one_is_enqueued(http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, f"{topic}.fifo")
    await queue.put()
    path = f"/in/{queue.name}"
    refused(await http.post(path, content=b"1", headers=JSON), 400, "invalid_request")
    answers = await asyncio.gather(
        *(http.post(f"{path}/{quote('käfer 7')}/order-9", content=b"{}", headers=JSON) for _ in range(8))
    )
    told = [taken(answer) for answer in answers]
    assert sorted(body["duplicate"] for body in told) == [False] + [True] * 7
    assert len({(body["id"], body["seq"]) for body in told}) == 1
    assert taken(await http.post(f"{path}/other/order-9", content=b"{}", headers=JSON))["duplicate"] is False
    first = taken(await http.post(f"{path}/form", content=b"a=1", headers=FORM))
    assert taken(await http.post(f"{path}/form", content=b"a=1", headers=FORM)) == first | {"duplicate": True}
    job = await queue.take()
    assert (job["group"], job["meta"]["params"]) == ("käfer 7", {"group": "käfer 7", "dedupe": "order-9"})


async def test_no_topic_comes_about(http: httpx.AsyncClient, topic: str) -> None:
    for name in (topic, "%20", "a" * 256):
        refused(await http.post(f"/in/{name}", content=b"1", headers=JSON), 404, "topic_not_found")
    refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")
    await Topic(http, topic).put(type="log", ingest="public")
    refused(await http.post(f"/in/{topic}", content=b"1", headers=JSON), 409, "not_a_queue")
    refused(await http.post(f"/in/{topic}/a%2Fb", content=b"1", headers=JSON), 400, "invalid_request")
    refused(await http.post(f"/in/{topic}/{'g' * 129}", content=b"1", headers=JSON), 409, "not_a_queue")


async def test_a_topic_takes_what_it_accepts(queue: Topic) -> None:
    path = f"/in/{queue.name}"
    await queue.put(accepts=["application/json", "image/png", "application/vnd.api+json"])
    for headers in (FORM, TEXT, {}, {"content-type": "image/gif"}, {"content-type": "json"}):
        error = refused(await queue.http.post(path, content=b"a=1", headers=headers), 415, "unsupported_media_type")
        assert error["detail"]["accepts"] == ["application/json", "image/png", "application/vnd.api+json"]
    job = await sent(queue, b"\x89PNG\x00", {"content-type": "image/png"})
    assert base64.b64decode(job["data"]["$base64"]) == b"\x89PNG\x00"
    assert (await sent(queue, b'{"data": 1}', {"content-type": "application/vnd.api+json"}))["data"] == {"data": 1}
    await queue.put()
    latin = {"content-type": "text/plain; charset=iso-8859-1"}
    refused(await queue.http.post(path, content=b"\xe9", headers=latin), 415, "unsupported_media_type")


PART = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n'
MULTIPART = "multipart/form-data; boundary=b"
BAD_FORMS: list[tuple[bytes, str]] = [
    (b"--b0--", "multipart/form-data"),
    (b"----", 'multipart/form-data; boundary=""'),
    (b"", f"multipart/form-data; boundary={'b' * 71}"),
    (PART.replace(b"--b", b"--c") + b"1\r\n--c--", MULTIPART),  # another boundary
    (PART + b"1", MULTIPART),  # no end
    (b"", MULTIPART),
    (b"--b\r\nContent-Disposition: form-data\r\n\r\n1\r\n--b--", MULTIPART),  # no name
    (b"--b\r\nX: y\r\n\r\n1\r\n--b--", MULTIPART),
    (PART.replace(b"form-data", b"attachment") + b"1\r\n--b--", MULTIPART),
    (b"--b\r\n" + b"X" * 9_000, MULTIPART),  # a header without end
    (b"--b\r\n" + b"X: y\r\n" * 100 + b"\r\n1\r\n--b--", MULTIPART),
    (PART.replace(b'"a"', b'"\xff"') + b"1\r\n--b--", MULTIPART),
    (PART + b"\xff\r\n--b--", MULTIPART),
    (PART + b"\0\r\n--b--", MULTIPART),
    *((text, FORM["content-type"]) for text in (b"x" * 257 + b"=1", b"a=%00", b"a=%ff", b"a=\xff", b"a=%4")),
    (b"&".join([b"a=1"] * (MAX_FIELDS + 1)), FORM["content-type"]),
    *((text, "application/json") for text in (b"{", b"", b'"\\u0000"', b"[" * 200 + b"]" * 200, b'"\xff"')),
]


async def test_a_body_that_is_not_what_it_says_is_refused(queue: Topic) -> None:
    for content, kind in BAD_FORMS:
        answer = await queue.http.post(f"/in/{queue.name}", content=content, headers={"content-type": kind})
        assert answer.status_code == 400, content[:80]
        refused(answer, 400, "invalid_request")
    assert await queue.counts() == (0, 0)


async def test_a_forms_size_is_bounded(queue: Topic) -> None:
    path = f"/in/{queue.name}"
    for count, files in ((MAX_FIELDS + 1, False), (MAX_FILES + 1, True)):
        body, headers = multipart(*(part(f"f{i}", b"", "x" if files else None) for i in range(count)))
        refused(await queue.http.post(path, content=body, headers=headers), 400, "invalid_request")
    for size in (800_000, 1_100_000, 20_000_000):  # the first is too large only once it is base64
        body, headers = multipart(part("f", b"\0" * size, "x"))
        refused(await queue.http.post(path, content=body, headers=headers), 413, "payload_too_large")
    refused(await queue.http.post(path, content=b"x" * 1_048_577, headers=TEXT), 413, "payload_too_large")
    assert len((await sent(queue, b"x" * 1_048_576, TEXT))["data"]) == 1_048_576
    body, headers = multipart(*(part(f"f{i}", b"") for i in range(MAX_FIELDS)))
    assert len((await sent(queue, body, headers))["data"]) == MAX_FIELDS


async def test_a_record_says_which_user_it_is_for(queue: Topic) -> None:
    await queue.append({"data": 1, "user_id": "ü 1"}, {"data": 2, "user_id": "2", "meta": {"a": 1, "$user_id": "9"}})
    message = {"topic": queue.name, "payload": "3", "user_id": "3", "metadata": {"b": "c"}}
    assert (await queue.http.post("/api/messages", json=message)).status_code == 201
    jobs = (await queue.claim(max=3))["claimed"]
    assert [job["meta"] for job in jobs] == [
        {"$user_id": "ü 1"},
        {"a": 1, "$user_id": "2"},
        {"b": "c", "$user_id": "3"},
    ]


async def test_pages_of_other_origins_read_what_a_public_topic_answers(services: Services) -> None:
    service = await services.start(ingest_origins="https://shop.example, http://localhost:3000")
    origin = {"origin": "https://shop.example"}
    async with client(service) as http:
        public, other = Topic(http, "form"), Topic(http, "keyed")
        await public.put(ingest="public")
        await other.put()
        answer = await http.post("/in/form", content=b"a=1", headers=FORM | origin)
        assert answer.headers["access-control-allow-origin"] == "https://shop.example"
        assert answer.headers["access-control-expose-headers"] == "X-Job-Id"
        for path, headers in (
            ("/in/form", {"origin": "https://evil.example"}),
            ("/in/form", {}),
            ("/in/keyed", origin),
        ):
            answer = await http.post(path, content=b"a=1", headers=FORM | headers)
            assert "access-control-allow-origin" not in answer.headers
        await public.drop()
        await other.drop()


async def test_who_may_send(guarded: Running) -> None:
    """A public topic takes what anybody sends, there alone; all else needs a key for that topic, that may write."""
    async with client(guarded, "root") as root, client(guarded) as nobody:
        await Topic(root, "in.public").put(ingest="public")
        await Topic(root, "in.keyed").put()
        writer = bearer((await make(root, scopes=["write"], prefixes=["in."]))["secret"])
        others = bearer((await make(root, prefixes=["out."]))["secret"])
        reader = bearer((await make(root, scopes=["read"], prefixes=["in."]))["secret"])

        async def post(topic: str, headers: dict[str, str]) -> httpx.Response:
            return await nobody.post(f"/in/{topic}", content=b"1", headers=JSON | headers)

        taken(await post("in.public", {}))
        taken(await post("in.public", others))
        taken(await post("in.keyed", writer))
        acme = bearer((await make(root, scopes=["write"], tenant="acme"))["secret"])
        seq = taken(await post("in.keyed", acme))["seq"]
        jobs = (await Topic(root, "in.keyed").claim(max=9, tenants=["acme"]))["claimed"]
        assert [job["$seq"] for job in jobs] == [seq]
        refused(await post("in.public", bearer("hf_guess")), 401, "unauthorized")
        # Neither tells whether there is such a topic.
        for topic in ("in.keyed", "in.none", "%20"):
            refused(await post(topic, {}), 401, "unauthorized")
            refused(await post(topic, others), 403, "forbidden")
            refused(await post(topic, reader), 403, "forbidden")
        refused(await post("in.none", writer), 404, "topic_not_found")
        # Public is for this route alone, and ends with the setting.
        refused(await nobody.post("/v0/topics/in.public", json={"records": [{"data": 1}]}), 401, "unauthorized")
        refused(await nobody.post("/v0/topics/in.public/claim", json={"node": "n"}), 401, "unauthorized")
        await Topic(root, "in.public").put()
        refused(await post("in.public", {}), 401, "unauthorized")


async def test_what_was_made_anew_elsewhere_may_be_public_no_more(services: Services, guarded: Running) -> None:
    """Without hints between them: the job's own statement finds the old topic gone."""
    other = await services.start(api_keys="root")
    async with client(guarded, "root") as here, client(other, "root") as there, client(guarded) as nobody:
        await Topic(here, "in.anew").put(ingest="public")
        taken(await nobody.post("/in/in.anew", content=b"1", headers=JSON))
        await Topic(there, "in.anew").drop()
        await Topic(there, "in.anew").put()
        refused(await nobody.post("/in/in.anew", content=b"1", headers=JSON), 401, "unauthorized")
        taken(await here.post("/in/in.anew", content=b"1", headers=JSON))


async def token_for(root: httpx.AsyncClient, user_id: str, **fields: object) -> dict[str, str]:
    return bearer(accepted(await root.post(f"/v0/users/{quote(user_id)}/token", json=fields))["token"])


async def test_an_applications_user_sends_with_their_token(guarded: Running, queue: Topic) -> None:
    """To public topics alone; whether there is another topic is not told. An open server takes it for the id alone."""
    token = await token_for(queue.http, "ada")
    assert (await sent(queue, b"1", JSON | token))["meta"] == {"$user_id": "ada"}
    assert "meta" not in await sent(queue, b"1", JSON | bearer("not.a.token"))
    async with client(guarded, "root") as root, client(guarded) as nobody:
        queue, keyed = Topic(root, "of.customers"), Topic(root, "of.keys")
        await queue.put(ingest="public")
        await keyed.put()
        token = await token_for(root, "käthe 7")
        taken(await nobody.post("/in/of.customers?a=1", content=b"1", headers=JSON | token))
        assert (await queue.take())["meta"] == {"params": {"a": "1"}, "$user_id": "käthe 7"}
        for name in (keyed.name, "of.nothing"):
            error = refused(await nobody.post(f"/in/{name}", content=b"1", headers=JSON | token), 403, "forbidden")
            assert "with ingest: public" in error["message"]
        brief = await token_for(root, "käthe 7", ttl_ms=1_000)

        async def has_expired() -> bool:
            answer = await nobody.get(f"/v0/users/{quote('käthe 7')}/events?last_event_id=x", headers=brief)
            return answer.status_code == 401

        await eventually(has_expired)
        error = refused(await nobody.post("/in/of.customers", content=b"1", headers=JSON | brief), 401, "unauthorized")
        assert "expired" in error["message"]
        assert await queue.counts() == (0, 1)


async def test_the_user_who_sends_is_the_jobs_user(guarded: Running) -> None:
    async with client(guarded, "root") as root, client(guarded) as nobody:
        queue = Topic(root, "of.users")
        await queue.put(ingest="public")
        user = await add_user(root, "write of.*", name="ingesting")
        token = await token_of(root, "ingesting")
        for headers in (token, basic("ingesting")):
            taken(await nobody.post("/in/of.users?a=1", content=b"1", headers=JSON | headers))
            assert (await queue.take())["meta"] == {"params": {"a": "1"}, "$user_id": user["id"]}
        # A password that a browser sends along from a page of another site says nothing.
        foreign = {**basic("ingesting"), "sec-fetch-site": "cross-site"}
        taken(await nobody.post("/in/of.users", content=b"1", headers=JSON | foreign))
        assert "meta" not in await queue.take()
        await queue.put()
        refused(await nobody.post("/in/of.users", content=b"1", headers=JSON | foreign), 403, "forbidden")
