"""Every query of every panel and alert, asked of a Prometheus that has scraped a service with traffic."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from pydantic import SecretStr

from app.features.upkeep.reapers import Reapers
from app.kernel.counts import levels
from app.main import SWEEPS
from tests.api.dialect import Topic, eventually
from tests.api.events import working
from tests.conftest import Running
from tests.monitoring import sources
from tests.monitoring.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.slow

# What has no sample here, by a part of the query, and why.
EMPTY = {
    "holdfast_redis_": "no Redis is set",
    "holdfast_unarchived_days": "no days go to files",
    "holdfast_schedule_": "no schedule is due so soon",
    "holdfast_database_slot_bytes": "the server has no slots",
    "holdfast_database_standby_behind_bytes": "nor standbys",
    "holdfast_database_wal_archive_failing": "nor an archive of its log",
}
RARE = {'outcome="failed"': "no sweep fails", "holdfast_statement_errors_total": "no statement fails"}
EXCUSES = [*EMPTY, *RARE]
VARIABLES = {"$job": "holdfast", "$topic": "mail", "$__rate_interval": "30s"}


async def traffic(http: httpx.AsyncClient) -> None:
    """Jobs that go each way there is, and calls that are refused."""
    mail = Topic(http, "mail")
    await mail.add(12)
    jobs = (await mail.claim(max=6))["claimed"]
    seqs = [job["$seq"] for job in jobs]
    await mail.extend("n", seqs, 60_000)
    await mail.ack("n", seqs[:4])
    await mail.fail("n", seqs[4:5])
    await mail.nack("n", seqs[5:])
    await Topic(http, "letters").claim()
    # A job whose holder is silent comes again.
    await mail.claim(max=1, lease_ms=100)

    async def ended() -> bool:
        return (await mail.counts())[1] == 0

    await eventually(ended, 30)
    async with working(mail, "w", max=1) as stream:
        await stream.job()
    await http.get("/nowhere")


@pytest.fixture(scope="module")
async def scraped(
    serve: Callable[..., Awaitable[Running]],
    new_database: Callable[[], Awaitable[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Prometheus]:
    """A Prometheus that has seen numbers move: traffic went on before a scrape and after."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(levels, "FRESH_SECONDS", 0.0)
        patched.setattr(levels, "SHARE", 0)
        service = await serve(database_url=SecretStr(await new_database()), api_keys="all,reads:read")
        key = {"authorization": "Bearer all"}
        async with (
            httpx.AsyncClient(base_url=service.url, headers=key, timeout=35) as http,
            prometheus(tmp_path_factory.mktemp("prometheus"), service.url, "reads") as running,
        ):
            await Topic(http, "mail").put(max_deliveries=3, dead_letter="letters", lease_ms=60_000)
            await Topic(http, "letters").put()
            await Topic(http, "notes").put(type="log")
            await Topic(http, "notes").append({"data": 1})
            for sweep in SWEEPS:
                await service.context.core(Reapers).run(sweep.name)
            for acked in (4, 8):
                await traffic(http)
                await running.until(f'holdfast_topic_acked_total{{topic="mail"}} >= {acked}')
            yield running


async def test_every_panel_has_what_it_shows(scraped: Prometheus) -> None:
    panels = [panel for board in sources.boards().values() for panel in sources.panels(board)]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    queries = [re.sub(r"\$\w+", lambda name: VARIABLES[name[0]], query) for query in shown]
    assert len(queries) > 100
    empty = set(queries)

    async def answered() -> bool:
        for query in sorted(empty):
            samples = await scraped.ask(query)
            if [one for one in samples if not math.isnan(float(one["value"][1]))]:
                empty.remove(query)
        return not wrong()

    def wrong() -> list[str]:
        return [query for query in empty if not any(part in query for part in EXCUSES)]

    try:
        await eventually(answered, 30)  # a scrape that takes more than its second is none
    except AssertionError:
        raise AssertionError(wrong()) from None
    assert [part for part in EMPTY if not any(part in query for query in empty)] == [], "an excuse that nobody needs"


async def test_variables_find_what_there_is(scraped: Prometheus) -> None:
    found = set()
    for board in sources.boards().values():
        for one in board["templating"]["list"]:
            if one["type"] == "query":
                metric, label = one["definition"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
                query = f"last_over_time({metric.replace('$job', 'holdfast')}[5m])"
                found |= {sample["metric"][label] for sample in await scraped.ask(query)}
    assert found == {"holdfast", "mail", "letters", "notes"}


async def test_prometheus_judges_by_every_rule(scraped: Prometheus) -> None:
    async def judged() -> bool:
        return all(rule["health"] != "unknown" for rule in await scraped.rules())

    await eventually(judged, 30)
    rules = {rule["name"]: rule for rule in await scraped.rules()}
    assert set(sources.alerts()) <= set(rules)
    assert {name: rule["lastError"] for name, rule in rules.items() if rule["health"] != "ok"} == {}
    for name, rule in sources.alerts().items():
        for metric in sources.metrics(rule["expr"]):
            known = await scraped.ask(f"count(last_over_time({metric}[5m]))")
            assert known or any(part in metric for part in EXCUSES), (name, metric)


async def test_dead_letters_that_lie_are_nobodys_to_claim(scraped: Prometheus) -> None:
    taking = await scraped.ask("count by (topic) (last_over_time(holdfast_topic_takes_dead_letters[5m]))")
    assert [one["metric"]["topic"] for one in taking] == ["letters"]
