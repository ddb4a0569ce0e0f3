"""The setting `webhook`: what may be asked for, and a secret that nobody sees again."""

from __future__ import annotations

import httpx
import pytest

from app.kernel.topics.webhooks import MASK
from app.settings import Settings
from tests.api.dialect import Topic, refused
from tests.api.keyring import Services
from tests.webhooks.conftest import complete_next
from tests.webhooks.receiver import SECRET, Receiver

OWN = "a secret of the topic's own"
URL = "https://example.org/hook"


async def test_a_secret_is_shown_never_again(services: Services, queue: Topic) -> None:
    assert "webhook" not in (await queue.state())["config"]
    put = (await queue.put(webhook={"url": URL, "on": ["failed"], "secret": OWN}))["config"]["webhook"]
    got = (await queue.state())["config"]["webhook"]
    assert put == got == {"url": URL, "on": ["failed"], "secret": put["secret"]}
    assert put["secret"].startswith(MASK)
    trail = (await queue.http.get("/v0/admin/audit", params={"subject": queue.name})).text
    configs = (await queue.http.get(f"/api/topic-configs/{queue.name}")).text
    assert put["secret"] in trail
    assert put["secret"] in configs
    assert OWN not in trail + configs
    rows = await services.sql("SELECT to_json(t)::text AS row FROM holdfast.topics t WHERE name = $1", queue.name)
    assert OWN not in rows[0]["row"], "so no copy of a policy has it, in Redis or elsewhere"


async def test_what_stands_for_a_secret_leaves_it_and_another_takes_its_place(queue: Topic, receiver: Receiver) -> None:
    hook = (await queue.put(webhook={"url": URL, "secret": OWN}))["config"]["webhook"]
    await queue.put(webhook={**hook, "url": receiver.url()})
    config = f"/api/topic-configs/{queue.name}"
    shown = (await queue.http.get(config)).json()
    assert (await queue.http.put(config, json=shown)).json() == shown
    changed = (await queue.http.put(config, json={"max_depth": 7})).json()
    assert changed["webhook"] == shown["webhook"], "absent: as it was"
    await queue.add(2)
    await complete_next(queue)
    assert (await receiver.get())[0].is_signed_with(OWN.encode())

    other = (await queue.put(webhook={"url": receiver.url(), "secret": f"{OWN} 2"}))["config"]["webhook"]
    assert other["secret"] != hook["secret"]
    trail = (await queue.http.get("/v0/admin/audit", params={"page_size": 1, "subject": queue.name})).text
    assert hook["secret"] in trail
    assert other["secret"] in trail
    await complete_next(queue)
    assert (await receiver.get(2))[1].is_signed_with(f"{OWN} 2".encode())


async def test_a_put_without_it_forgets_webhook_and_secret(services: Services, queue: Topic) -> None:
    hook = (await queue.put(webhook={"url": URL, "secret": OWN}))["config"]["webhook"]
    await queue.put()
    assert "webhook" not in (await queue.state())["config"]
    refused(await queue.http.put(queue.path, json={"type": "queue", "webhook": hook}), 400, "invalid_request")
    await queue.put(webhook={"url": URL, "secret": OWN})
    await queue.drop()
    kept = "SELECT topic_id FROM holdfast.webhook_secrets WHERE topic_id NOT IN (SELECT id FROM holdfast.topics)"
    assert await services.sql(kept) == []
    # What stands for no secret makes no topic.
    refused(await queue.http.put(queue.path, json={"type": "queue", "webhook": hook}), 400, "invalid_request")
    refused(await queue.http.get(queue.path), 404, "topic_not_found")


@pytest.mark.parametrize(
    "hook",
    [
        {"url": URL, "on": []},
        {"url": URL, "on": ["expired"]},
        {"url": URL, "secret": "short"},
        {"url": "x" * 3_000},
        "x",
    ],
)
async def test_nonsense_is_refused(queue: Topic, hook: object) -> None:
    refused(await queue.http.put(queue.path, json={"type": "queue", "webhook": hook}), 400, "invalid_request")
    config = await queue.http.put(f"/api/topic-configs/{queue.name}", json={"webhook": hook})
    assert config.status_code == 400


async def test_without_any_secret_nothing_is_promised(services: Services, topic: str) -> None:
    unsigned = await services.start(webhook_allow="127.0.0.1")
    async with httpx.AsyncClient(base_url=unsigned.url, timeout=35) as http:
        queue = Topic(http, topic)
        body = {"type": "queue", "webhook": {"url": URL}}
        why = refused(await http.put(queue.path, json=body), 400, "invalid_request")["message"]
        assert "HOLDFAST_WEBHOOK_SECRET" in why
        await queue.put()
        record = {"data": 1, "webhook": URL}
        refused(await http.post(queue.path, json={"records": [record]}), 400, "invalid_request")
        await queue.put(webhook={"secret": OWN})
        await queue.append(record)
    await unsigned.stop()


async def test_the_services_own_topic_is_for_administrators_and_takes_nothing(
    services: Services, queue: Topic, receiver: Receiver
) -> None:
    http, own = queue.http, "/v0/topics/holdfast.webhooks"
    receiver.answers = [b"HTTP/1.1 410 Gone\r\n\r\n"]  # so that it stays, as failed
    await queue.append({"data": 1, "webhook": receiver.url()})
    await complete_next(queue)
    await receiver.get()
    assert (await http.get(own)).status_code == 200
    refused(await http.post(own, json={"records": [{"data": 1}]}), 403, "forbidden")
    assert (await http.post("/api/messages", json={"topic": "holdfast.webhooks", "payload": "1"})).status_code == 403
    refused(await http.put("/v0/topics/holdfast.mine", json={"type": "queue"}), 400, "invalid_request")
    letters = {"type": "queue", "max_deliveries": 1, "dead_letter": "holdfast.webhooks"}
    refused(await http.put(queue.path, json=letters), 400, "invalid_request")
    config = await http.put(f"/api/topic-configs/{queue.name}", json={"dead_letter": "holdfast.webhooks"})
    assert config.status_code == 400
    with pytest.raises(Exception, match=r"holdfast\. is kept"):
        await services.sql("INSERT INTO holdfast.inbox (topic, payload) VALUES ('holdfast.webhooks', '1')")

    [told] = await services.sql(
        """
        SELECT holdfast.message_id(j.topic_id, j.seq)::text AS id FROM holdfast.jobs j
        WHERE j.topic = 'holdfast.webhooks' AND j.tag = $1
        """,
        queue.name,
    )
    guarded = await services.start(api_keys="root,plain:rw", webhook_allow="127.0.0.1")
    async with httpx.AsyncClient(base_url=guarded.url, timeout=35) as keyed:
        for key, status in (("plain", 403), ("root", 200)):
            headers = {"authorization": f"Bearer {key}"}
            assert (await keyed.get(own, headers=headers)).status_code == status
            claim = {"topic": "holdfast.webhooks"}
            answer = await keyed.post("/api/messages/dequeue", json=claim, headers=headers)
            assert (answer.status_code == 403) == (key == "plain")
            message = await keyed.get(f"/api/messages/{told['id']}", headers=headers)
            assert message.status_code == (404 if key == "plain" else 200), "whoever can work out its id"
    await guarded.stop()


def test_targets_are_hosts_and_networks_and_a_secret_is_long() -> None:
    hosts, networks = Settings(webhook_allow="10.0.0.0/8, Hooks.internal,::1").webhook_targets
    assert hosts == {"hooks.internal"}
    assert [str(one) for one in networks] == ["10.0.0.0/8", "::1/128"]
    for text in ("10.0.0.0/33", "a b", "http://x", "x/8", "10.0.0.0/8,,*"):
        with pytest.raises(ValueError, match="webhook_allow"):
            Settings(webhook_allow=text)
    with pytest.raises(ValueError, match="32 bytes"):
        Settings.model_validate({"webhook_secret": "short"})
    assert len(SECRET) >= 32
