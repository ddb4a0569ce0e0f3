"""The queue page of the original, word for word: each request it prints is taken as it stands, and each answer has
the printed keys with the printed JSON types."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.api.dialect import JSON, Body, accepted
from tests.api.events import Frame

PUT = """{ "type": "queue", "durable": true, "discard": "reject",
         "lease_ms": 30000, "claim_jitter_ms": 0,
         "max_deliveries": 5, "dead_letter": "transcode.dlq" }"""
RECORDS = """{ "records": [ { "data": { "type": "transcode", "src": "s3://uploads/clip-8800.mov", "preset": "h264-1080p" },
                      "tag": "clip-8800" } ] }"""  # noqa: E501  (as printed)
CLAIM = '{ "node": "api-fra-1", "max": 16, "lease_ms": 30000 }'
ACK = '{ "node": "api-fra-1", "seqs": [480101, 480104], "lease_ids": ["lease_1a2b", "lease_3c4d"] }'
NACK = '{ "node": "api-fra-1", "seqs": [480104], "delay_ms": 0, "lease_ids": ["lease_3c4d"] }'
EXTEND = '{ "node": "api-fra-1", "seqs": [480101], "lease_ms": 30000, "lease_ids": ["lease_1a2b"] }'

CLAIMED = """{
  "topic": "transcode",
  "claimed": [
    { "$seq": 480101, "lease_id": "lease_7f3a9c", "deadline": 1748450039000,
      "$ts": 1748450001000, "$tag": "clip-8800", "deliveries": 1,
      "data": { "type": "transcode", "src": "s3://uploads/clip-8800.mov", "preset": "h264-1080p" }, "meta": { "trace": "z9" } },
    { "$seq": 480104, "lease_id": "lease_7f3a9d", "deadline": 1748450039000,
      "$ts": 1748450001050, "deliveries": 2,
      "data": { "type": "thumbnail", "src": "s3://uploads/clip-8804.mov", "at_sec": 5 } }
  ],
  "count": 2,
  "ready": 840,
  "performance": { "server_total_ms": 0.42, "throttle_wait_ms": 0.0 }
}"""  # noqa: E501  (as printed)
ACKED = """{ "topic": "transcode", "acked": 2, "skipped": [],
  "ready": 840, "in_flight": 286,
  "performance": { "server_total_ms": 0.30, "fsync_ms": 0.21 } }"""
NACKED = """{ "topic": "transcode", "nacked": 1, "skipped": [],
  "ready": 841, "in_flight": 285,
  "performance": { "server_total_ms": 0.18 } }"""
EXTENDED = """{ "topic": "transcode", "extended": 1, "skipped": [],
  "deadlines": { "480101": 1748450069000 },
  "performance": { "server_total_ms": 0.12 } }"""
STATE = """{
  "topic": "transcode", "type": "queue",
  "head_seq": 480231, "earliest_seq": 479101, "count": 1130,
  "config": { "type": "queue", "lease_ms": 30000 },
  "queue": { "ready": 842, "in_flight": 288, "dead_lettered": 4 },
  "performance": { "server_total_ms": 0.06 }
}"""
PUSHED = """{"topic":"transcode","$seq":480101,"lease_id":"lease_7f3a9c","deadline":1748450039000,"$ts":1748450001000,"$tag":"clip-8800","deliveries":1,"data":{"type":"transcode","src":"s3://uploads/clip-8800.mov","preset":"h264-1080p"}}"""

THUMBNAIL: Body = {"data": {"type": "thumbnail", "src": "s3://uploads/clip-8804.mov", "at_sec": 5}}


@pytest.fixture
async def curl(http: httpx.AsyncClient) -> httpx.AsyncClient:
    """curl as far as headers go, and no topic transcode yet."""
    http.headers = httpx.Headers({"user-agent": "curl/8.5.0", "accept": "*/*"})
    for name in ("transcode", "transcode.dlq"):
        assert (await http.delete(f"/v0/topics/{name}")).status_code == 200
    return http


async def send(curl: httpx.AsyncClient, method: str, path: str, body: str) -> Body:
    return accepted(await curl.request(method, path, content=body, headers=JSON))


def like(printed: object, real: object, where: str = "answer") -> None:
    """Fail unless `real` has every key of `printed`, with the same JSON types all the way down."""
    assert type(real) is type(printed), where
    if isinstance(printed, dict) and isinstance(real, dict):
        assert set(printed) <= set(real), f"{where} lacks {set(printed) - set(real)}"
        for key, value in printed.items():
            like(value, real[key], f"{where}.{key}")
    elif isinstance(printed, list) and isinstance(real, list):
        assert len(real) >= len(printed), where
        for i, value in enumerate(printed):
            like(value, real[i], f"{where}[{i}]")


async def test_a_job_goes_through_its_life(curl: httpx.AsyncClient) -> None:
    made = await send(curl, "PUT", "/v0/topics/transcode", PUT)
    assert (made["topic"], made["created"]) == ("transcode", True)
    assert {key: made["config"][key] for key in json.loads(PUT)} == json.loads(PUT)
    appended = await send(curl, "POST", "/v0/topics/transcode", RECORDS)
    assert appended["seqs"] == [1]
    # The first job of the page's claim has a meta that its POST does not give, the second has been delivered once.
    await send(curl, "POST", "/v0/topics/transcode/claim", CLAIM)
    await send(curl, "POST", "/v0/topics/transcode/ack", '{"node": "api-fra-1", "seqs": [1]}')
    traced = json.loads(RECORDS)["records"][0] | {"meta": {"trace": "z9"}}
    await send(curl, "POST", "/v0/topics/transcode", json.dumps({"records": [traced, THUMBNAIL]}))
    await send(curl, "POST", "/v0/topics/transcode/claim", CLAIM)
    for seq in (2, 3):
        await send(curl, "POST", "/v0/topics/transcode/nack", json.dumps({"node": "api-fra-1", "seqs": [seq]}))

    claimed = await send(curl, "POST", "/v0/topics/transcode/claim", CLAIM)
    like(json.loads(CLAIMED), claimed)
    assert [job["$seq"] for job in claimed["claimed"]] == [2, 3]
    assert "$tag" not in claimed["claimed"][1]
    assert "meta" not in claimed["claimed"][1]
    first, second = (job["lease_id"] for job in claimed["claimed"])

    state = await send(curl, "GET", "/v0/topics/transcode", "")
    like(json.loads(STATE), state)
    assert state["queue"] == {"ready": 0, "in_flight": 2, "dead_lettered": 0}

    renewed = EXTEND.replace("480101", "2").replace("lease_1a2b", first)
    extended = await send(curl, "POST", "/v0/topics/transcode/extend", renewed)
    like(json.loads(EXTENDED.replace("480101", "2")), extended)
    assert extended["extended"] == 1

    returned = NACK.replace("480104", "3").replace("lease_3c4d", second)
    nacked = await send(curl, "POST", "/v0/topics/transcode/nack", returned)
    like(json.loads(NACKED), nacked)
    assert (nacked["nacked"], nacked["ready"], nacked["in_flight"]) == (1, 1, 1)

    again = await send(curl, "POST", "/v0/topics/transcode/claim", CLAIM)
    both = ACK.replace("480101, 480104", "2, 3").replace("lease_1a2b", first)
    both = both.replace("lease_3c4d", again["claimed"][0]["lease_id"])
    acked = await send(curl, "POST", "/v0/topics/transcode/ack", both)
    like(json.loads(ACKED), acked)
    assert (acked["acked"], acked["skipped"], acked["ready"], acked["in_flight"]) == (2, [], 0, 0)


async def test_seqs_and_lease_ids_of_the_page_that_were_never_given_out_are_skipped(curl: httpx.AsyncClient) -> None:
    await send(curl, "PUT", "/v0/topics/transcode", PUT)
    for verb, body, printed in (("ack", ACK, ACKED), ("nack", NACK, NACKED), ("extend", EXTEND, EXTENDED)):
        answer = await send(curl, "POST", f"/v0/topics/transcode/{verb}", body)
        like(json.loads(printed) | ({"deadlines": {}} if verb == "extend" else {}), answer)
        assert answer["skipped"] == json.loads(body)["seqs"]
    await send(curl, "POST", "/v0/topics/transcode", RECORDS)
    await send(curl, "POST", "/v0/topics/transcode/claim", CLAIM)
    stale = '{ "node": "api-fra-1", "seqs": [1], "lease_ids": ["lease_1a2b"] }'
    answer = await send(curl, "POST", "/v0/topics/transcode/ack", stale)
    assert (answer["acked"], answer["skipped"], answer["in_flight"]) == (0, [1], 1)


async def test_the_work_stream_opens_with_curls_headers(curl: httpx.AsyncClient) -> None:
    await send(curl, "PUT", "/v0/topics/transcode", PUT)
    await send(curl, "POST", "/v0/topics/transcode", RECORDS)
    url, headers = "/v0/topics/transcode/work?node=api-fra-1&max=8", {"accept": "text/event-stream"}
    async with curl.stream("GET", url, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].split(";")[0] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        text = ""
        async for more in response.aiter_text():
            text += more
            if text.count("\n\n") == 3:
                break
    retry, heartbeat, job, _ = text.split("\n\n")
    assert retry == "retry: 2000"
    assert heartbeat == ": hb"
    assert [line.split(":")[0] for line in job.splitlines()] == ["id", "event", "data"]
    pushed = Frame(job, 0)
    assert pushed.fields["id"] == "1"
    assert pushed.fields["event"] == "job"
    like(json.loads(PUSHED), pushed.data)
