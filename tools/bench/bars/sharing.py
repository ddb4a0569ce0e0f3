"""Whether a second process is worth its while."""

from __future__ import annotations

from tools.bench.bench import Bench, Effort
from tools.bench.figures import Figure, Ratio, in_turns
from tools.bench.fill import fill, settle
from tools.bench.load import Consume

CLIENTS = 8
MOST = 100
PROCESSES = 4
PACE = 10_000  # jobs for each second of effort


async def sharing(bench: Bench, effort: Effort) -> list[Figure]:
    """Claims of eight clients that are shared by four server processes, as by four nodes, against one process."""
    size = max(int(PACE * effort.seconds) // 2, 4 * CLIENTS * MOST)
    rounds = effort.rounds * 2
    topic = (await bench.queue("sharing")).topic
    await fill(bench, topic, (2 * rounds + PROCESSES - 1) * size + 20_000)
    await settle(bench)

    async def measure(ports: list[int]) -> float:
        return (await bench.drive(Consume(ports, topic.name, CLIENTS, size, MOST, ack=False))).rate

    async with bench.services(PROCESSES - 1) as others:
        ports = [bench.service.port, *(service.port for service in others)]
        for port in ports[1:]:
            await measure([port])  # no process is measured by its first claims
        rates, bases = await in_turns(rounds, lambda: measure(ports), lambda: measure(ports[:1]))
    return [Ratio("claim, batches of 100, 4 processes / 1", "jobs", rates, bases, 1.00)]
