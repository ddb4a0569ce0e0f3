"""What a client of the original server counts on and no other test holds: the fields of answers, and small rules."""

from __future__ import annotations

import gzip
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import JSON, Body, Topic, accepted, refused
from tests.api.keyring import Services, bearer, client, make
from tests.settings import defaults

if TYPE_CHECKING:
    from tests.api.conftest import Serve

CONFIG = (
    "type ttl_ms cap_records cap_bytes discard durable durability priority auto_priority auto_create "
    "idempotency_window_ms dedupe_node lease_ms claim_jitter_ms max_deliveries dead_letter leases_durable"
)
OURS = " ".join(defaults(but={"webhook", *CONFIG.split()}))
STATE = (
    "topic type head_seq earliest_seq next_seq count bytes config effective_priority last_write_ts last_read_ts "
    "performance"
)
JOB = "$seq lease_id deadline $ts deliveries data"


def has(answer: Body, fields: str, *, more: str = "") -> Body:
    """The answer, which has these fields and no others but `more`, which are ours."""
    assert set(answer) == set(fields.split()) | set(more.split())
    return answer


async def test_the_answers_about_topics_have_their_fields(http: httpx.AsyncClient, topic: str) -> None:
    queue, log = Topic(http, topic), Topic(http, f"{topic}.log")
    made = has(await queue.put(), "topic created config performance")
    has(made["config"], CONFIG, more=OURS)
    assert (await log.put(type="log"))["created"] is True
    has(await queue.state(), STATE + " queue")
    has((await queue.state())["queue"], "ready in_flight dead_lettered")
    has(await log.state(), STATE)
    page = has(accepted(await http.get(f"/v0/topics?prefix={topic}")), "topics performance")
    for item in page["topics"]:
        has(item, "topic head_seq earliest_seq count bytes durable effective_priority")
    first = accepted(await http.get(f"/v0/topics?prefix={topic}&page_size=1"))
    has(first, "topics next_cursor performance")
    has(await queue.drop(), "topic deleted routers_removed performance")


async def test_the_answers_about_jobs_have_their_fields(queue: Topic) -> None:
    appended = await queue.append({"data": None}, {"data": 1, "tag": "t", "meta": {"a": 1}, "node": "p"})
    has(appended, "topic first_seq last_seq seqs head_seq count created deduped performance")
    claimed = has(await queue.claim("n", max=2), "topic claimed count ready performance")
    plain, full = claimed["claimed"]
    has(plain, JOB, more="token order")
    has(full, JOB + " $tag meta", more="token order")
    assert re.fullmatch("lease_[0-9a-f]+", plain["lease_id"])
    assert plain["data"] is None
    assert plain["deadline"] - plain["$ts"] >= 30_000
    extended = has(
        await queue.extend("n", [1, 9], 1_000), "topic extended skipped deadlines performance", more="cancelled"
    )
    assert (extended["extended"], extended["skipped"], set(extended["deadlines"])) == (1, [9], {"1"})
    has(await queue.nack("n", [1, 9]), "topic nacked skipped ready in_flight performance")
    acked = has(await queue.ack("n", [2, 9]), "topic acked skipped ready in_flight performance")
    assert (acked["acked"], acked["skipped"], acked["ready"], acked["in_flight"]) == (1, [9], 1, 0)


async def test_the_answers_of_a_log_have_their_fields(http: httpx.AsyncClient, topic: str) -> None:
    log = Topic(http, topic)
    await log.put(type="log", cap_records=2)
    await log.append(*({"data": i, "tag": "t", "node": "p", "meta": {}} for i in range(3)))
    read = await log.post("diff", include_tags=True)
    has(read, "topic records next_from_seq head_seq earliest_seq caught_up tombstone lag performance")
    has(read["records"][0], "$seq $ts $node $tag data meta")
    has(read["tombstone"], "gap_from gap_to reason missed_estimate earliest_seq head_seq")
    has(read["performance"], "server_total_ms records_scanned")
    has((await log.post("diff", include_meta=False))["records"][0], "$seq $ts $node data")
    has(await log.post("delete", before_seq=3), "topic deleted earliest_seq head_seq count bytes performance")


@pytest.mark.parametrize("path", ["/healthz", "/v0/health", "/readyz", "/v0/ready"])
async def test_the_answers_of_probes_have_their_fields(http: httpx.AsyncClient, path: str) -> None:
    fields = "status version uptime_ms" if "health" in path else "status wal_replay_complete topics"
    assert has((await http.get(path)).json(), fields)["status"] in {"ok", "ready"}


@pytest.mark.parametrize(("asked", "counts"), [(7, 7), (5_000, 1_000), (-5_000, -1_000)])
async def test_a_topics_priority_is_clamped_when_it_is_read(queue: Topic, asked: int, counts: int) -> None:
    await queue.put(priority=asked)
    assert (await queue.state())["effective_priority"] == counts
    page = accepted(await queue.http.get(f"/v0/topics?prefix={queue.name}"))
    assert page["topics"][0]["effective_priority"] == counts


async def test_a_put_that_means_a_log_says_what_to_send_for_a_queue(queue: Topic) -> None:
    error = refused(await queue.http.put(queue.path, json={"durable": True}), 409, "topic_exists_incompatible")
    assert 'Send "type": "queue"' in error["message"]


@pytest.mark.parametrize("body", [gzip.compress(b'{"node": "n"}'), b"{}"], ids=["gzip", "as gzip"])
async def test_a_compressed_body_is_refused_as_one(queue: Topic, body: bytes) -> None:
    for path in (f"{queue.path}/claim", f"/in/{queue.name}"):
        answer = await queue.http.post(path, content=body, headers=JSON | {"content-encoding": "gzip"})
        assert "compressed (content-encoding: gzip)" in refused(answer, 415, "unsupported_media_type")["message"]
    plain = await queue.http.post(f"{queue.path}/claim", json={"node": "n"}, headers={"content-encoding": "identity"})
    assert accepted(plain)["count"] == 0


async def test_another_host_name_is_told_what_to_set(queue: Topic) -> None:
    error = refused(await queue.http.get(queue.path, headers={"host": "queue.internal"}), 403, "forbidden")
    assert "'queue.internal'" in error["message"]
    assert "HOLDFAST_API_KEYS" in error["message"]


@pytest.mark.parametrize(("method", "path"), [("GET", "/v0/routers"), ("PUT", "/v0/routers/a>b")])
async def test_there_are_no_routers_and_the_answer_says_so(http: httpx.AsyncClient, method: str, path: str) -> None:
    error = refused(await http.request(method, path, json={}), 404, "not_found")
    assert "no routers" in error["message"]


async def test_a_put_that_changes_nothing_is_a_200(queue: Topic) -> None:
    answer = await queue.http.put(queue.path, json={"type": "queue"})
    assert answer.status_code == 200
    assert answer.json()["created"] is False


async def test_who_produced_a_job_may_claim_it(queue: Topic) -> None:
    await queue.append({"data": 1}, node="n")
    assert (await queue.take("n"))["$seq"] == 1


async def test_a_reader_of_a_topic_that_does_not_dedupe_sees_its_own(http: httpx.AsyncClient, topic: str) -> None:
    log = Topic(http, topic)
    for dedupe, seen in ((True, 0), (False, 1)):
        await log.put(type="log", dedupe_node=dedupe)
        if dedupe:
            await log.append({"data": 1}, node="me")
        assert len((await log.post("diff", node="me"))["records"]) == seen


async def test_what_the_original_takes_and_we_have_no_use_for_is_taken(queue: Topic) -> None:
    await queue.append({"data": 1}, disable_backpressure=True)
    for touch in ("true", "false"):
        accepted(await queue.http.get(f"{queue.path}?touch={touch}"))
        accepted(await queue.http.get(f"/v0/topics?prefix={queue.name}&touch={touch}"))


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("DELETE", "/v0/topics/{topic}", "if_empty"),
        ("GET", "/v0/topics/{topic}", "touch"),
        ("GET", "/v0/topics", "touch"),
        ("POST", "/v0/topics/{topic}", "return_seqs"),
    ],
)
@pytest.mark.parametrize("value", ["1", "", "True", "no", "null"])
async def test_a_parameter_is_true_or_false(queue: Topic, method: str, path: str, name: str, value: str) -> None:
    """?if_empty=1 must not delete what is not empty."""
    await queue.add(1)
    url = f"{path.format(topic=queue.name)}?{name}={value}"
    body = {"records": [{"data": 2}]} if method == "POST" else None
    refused(await queue.http.request(method, url, json=body), 400, "invalid_request")
    assert (await queue.state())["count"] == 1


@pytest.mark.parametrize("size", ["1_000", "+1", " 1", "1.0", "٣", "", "1" * 5_000])
async def test_the_size_of_a_page_is_a_whole_number(http: httpx.AsyncClient, size: str) -> None:
    refused(await http.get("/v0/topics", params={"page_size": size}), 400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v0/topics/t", "DELETE, GET, POST, PUT"),
        ("/v0/keys", "GET, POST"),
        ("/v0/keys/k", "DELETE, GET"),
        ("/v0/topics/t/claim", "POST"),
    ],
)
async def test_a_refused_method_is_told_every_other(http: httpx.AsyncClient, path: str, methods: str) -> None:
    answer = await http.request("PATCH", path)
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["allow"] == methods


async def test_a_slash_is_spoken_of_where_topics_are(http: httpx.AsyncClient) -> None:
    refused(await http.get("/v0/keys/a%2Fb"), 404, "not_found")
    refused(await http.get("/v0/topics/a%2Fb"), 400, "invalid_request")


async def test_an_idempotency_key_is_looked_at_wherever_it_stands(queue: Topic) -> None:
    body = {"records": [{"data": 1}], "idempotency_key": "k"}
    for key in ("", "x" * 257):
        answer = await queue.http.post(queue.path, json=body, headers={"idempotency-key": key})
        refused(answer, 400, "invalid_request")
    assert (await queue.state())["count"] == 0


@pytest.mark.parametrize("config", [{"on_exhausted": "dead_letter"}, {"dead_letter": "a b"}])
async def test_a_config_that_makes_no_sense_is_refused_every_time(queue: Topic, config: Body) -> None:
    """And not by the first write only, which is the one that it counts for."""
    body = {"records": [{"data": 1}], "config": {"type": "queue", **config}}
    refused(await queue.http.post(queue.path, json=body), 400, "invalid_request")
    assert (await queue.state())["count"] == 0
    again = {"records": [{"data": 1}], "config": {"type": "log", "lease_ms": 5}}
    accepted(await queue.http.post(queue.path, json=again))  # one that does is ignored


async def test_no_json_is_refused_for_its_type_first(queue: Topic) -> None:
    for verb in ("", "/claim", "/ack", "/nack", "/extend", "/diff", "/delete"):
        answer = await queue.http.post(queue.path + verb, content=b"{", headers={"content-type": "text/plain"})
        refused(answer, 415, "unsupported_media_type")
        refused(await queue.http.post(queue.path + verb, content=b"{", headers=JSON), 400, "invalid_request")


async def test_a_revoked_key_has_no_old_secret(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> None:
    services = await Services.make(serve, new_database)
    running = await services.start(api_keys="root")
    async with client(running, "root") as root:
        key = await make(root)
        rotated = accepted(await root.post(f"/v0/keys/{key['id']}/rotate", json={"grace_ms": 60_000}))
        assert rotated["old_secret_until"] > rotated["rotated_at"]
        revoked = accepted(await root.delete(f"/v0/keys/{key['id']}"))
        assert (revoked["state"], revoked["old_secret_until"]) == ("revoked", None)
        refused(await root.get("/v0/topics", headers=bearer(key["secret"])), 401, "unauthorized")
    await running.stop()


async def test_faults_of_a_settlement_are_told_in_the_originals_order(http: httpx.AsyncClient, topic: str) -> None:
    """lease_ids that are none, no node, too many seqs, lease_ids that don't fit; then the topic, which is not there."""
    many = list(range(1_001))
    faults: list[tuple[Body, int, str]] = [
        ({"node": "", "seqs": many, "lease_ids": ["x"]}, 400, "invalid_request"),
        ({"node": "", "seqs": many}, 400, "invalid_request"),
        ({"node": "n", "seqs": many, "lease_ids": ["lease_1a"]}, 400, "batch_too_large"),
        ({"node": "n", "seqs": [1, 2], "lease_ids": ["lease_1a"]}, 400, "invalid_request"),
        ({"node": "n", "seqs": [1], "lease_ids": ["lease_1a"]}, 404, "topic_not_found"),
    ]
    for verb in ("ack", "nack", "extend"):
        more = {"lease_ms": 1_000} if verb == "extend" else {}
        for body, status, code in faults:
            refused(await http.post(f"/v0/topics/{topic}/{verb}", json=body | more), status, code)


@pytest.mark.parametrize(
    ("verb", "bad", "good"),
    [
        ("", {"records": [{"data": 1, "tag": "x" * 257}]}, {"records": [{"data": 1}]}),
        ("/diff", {"limit": -1}, {}),
        ("/delete", {}, {"before_seq": 1}),
        ("/delete", {"match": "a*b*"}, {"match": "a"}),
    ],
)
async def test_the_other_verbs_check_in_the_same_order(
    http: httpx.AsyncClient, topic: str, verb: str, bad: Body, good: Body
) -> None:
    path, never = f"/v0/topics/{topic}{verb}", {} if verb else {"create": False}
    plain = {"content-type": "text/plain"}
    refused(await http.post(path, content=b"{", headers=plain), 415, "unsupported_media_type")
    refused(await http.post(path, content=b"{", headers=JSON), 400, "invalid_request")
    refused(await http.post(path, json=bad | never), 400, "invalid_request")
    refused(await http.post(path, json=good | never), 404, "topic_not_found")


async def test_a_stream_checks_in_the_same_order(http: httpx.AsyncClient, topic: str) -> None:
    log = Topic(http, f"{topic}.log")
    await log.put(type="log")
    for path, status, code in (
        (f"/v0/topics/{topic}/work", 404, "topic_not_found"),
        (f"{log.path}/work", 409, "not_a_queue"),
    ):
        refused(await http.get(f"{path}?max=x", headers={"accept": "application/json"}), 406, "not_acceptable")
        refused(await http.get(f"{path}?node=n&max=x"), 400, "invalid_request")
        refused(await http.get(path), 400, "invalid_request")
        refused(await http.get(f"{path}?node=n"), status, code)


async def test_nothing_may_be_settled_at_all(queue: Topic) -> None:
    await queue.add(1)
    job = await queue.take()
    assert (await queue.ack("n", []))["acked"] == 0
    assert (await queue.nack("n", [], lease_ids=[]))["nacked"] == 0
    assert (await queue.extend("n", [], 60_000))["deadlines"] == {}
    assert (await queue.ack("n", [job["$seq"]]))["acked"] == 1


async def test_a_fault_of_the_service_is_told_as_one_and_no_more(queue: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("what only the log is to say")

    monkeypatch.setattr("app.features.topics.v0.store.get", broken)
    answer = await queue.http.get(queue.path)
    refused(answer, 500, "internal")
    assert "only the log" not in answer.text
    monkeypatch.undo()
    await queue.state()
