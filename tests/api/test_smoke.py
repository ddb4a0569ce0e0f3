"""The service answers."""

import httpx


async def test_health(http: httpx.AsyncClient) -> None:
    answer = await http.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"


async def test_put_append_claim_ack(http: httpx.AsyncClient, topic: str) -> None:
    assert (await http.put(f"/v0/topics/{topic}", json={"type": "queue"})).status_code == 201
    assert (await http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}]})).json()["seqs"] == [1]
    claimed = (await http.post(f"/v0/topics/{topic}/claim", json={"node": "n"})).json()
    assert claimed["count"] == 1
    acked = (await http.post(f"/v0/topics/{topic}/ack", json={"node": "n", "seqs": [1]})).json()
    assert acked["acked"] == 1
