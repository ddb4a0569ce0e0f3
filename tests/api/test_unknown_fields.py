"""A field that a call does not know is refused by its name: a misspelt one would be missed in silence. Which bodies
pass over what they do not know is in tests/security/test_properties.py."""

from __future__ import annotations

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.messages.client import done


async def test_a_field_that_a_verb_does_not_know_is_refused_by_its_name(queue: Topic) -> None:
    for verb, body, named in (
        ("/nack", {"node": "n", "seqs": [1], "delay": 5}, "delay"),
        ("", {"records": [{"data": 2}], "config": {"type": "queue", "lease": 5}}, "lease"),
    ):
        error = refused(await queue.http.post(queue.path + verb, json=body), 400, "invalid_request")
        assert error["message"].startswith(f"Object contains unknown field `{named}`")
        assert "check its spelling, or leave it out." in error["message"]


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"max_delivery": 5}, "max_delivery"),
        ({"backoff": {"kind": "fixed", "base": 5}}, "base"),
        ({"webhook": {"uri": "https://example.com"}}, "uri"),
    ],
)
async def test_a_misspelt_setting_is_refused_by_its_name(
    http: httpx.AsyncClient, topic: str, setting: Body, named: str
) -> None:
    for path, body in ((f"/v0/topics/{topic}", {"type": "queue", **setting}), (f"/api/topic-configs/{topic}", setting)):
        assert f"`{named}`" in refused(await http.put(path, json=body), 400, "invalid_request")["message"]
    assert (await http.get(f"/v0/topics/{topic}")).status_code == 404


async def test_a_configuration_that_was_read_can_be_put_back(http: httpx.AsyncClient, topic: str) -> None:
    await Topic(http, topic).put(backoff={"kind": "fixed"}, webhook={"url": "https://example.com", "secret": "x" * 8})
    config = (await Topic(http, topic).state())["config"]
    assert accepted(await http.put(f"/v0/topics/{topic}", json=config))["config"] == config
    path = f"/api/topic-configs/{topic}"
    shown = done(await http.get(path))
    assert shown["topic"] == topic
    assert done(await http.put(path, json=shown)) == shown
    answer = await http.put(path, json={"topic": f"{topic}.other"})
    assert "in the path" in refused(answer, 400, "invalid_request")["message"]


async def test_a_record_may_have_fields_of_its_own(queue: Topic) -> None:
    """A client of the original may write what it has read, `$seq` and all."""
    await queue.append({"$seq": 7, "$ts": 1, "data": 1, "extra": [1]})
    assert (await queue.take())["data"] == 1
