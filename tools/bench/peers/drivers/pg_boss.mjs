// pg-boss through its batch calls: insert, fetch and complete of 1000. Its workers call the same, a batch at a time.
import { inLanes, load, serve, timed, version } from "./protocol.mjs";

const { PgBoss } = load("pg-boss");
const BATCH = 1000;
const LANES = 4;
const QUEUE = "bench";

function boss(connectionString) {
  const made = new PgBoss({ connectionString, supervise: false, schedule: false, max: 10 });
  made.on("error", console.error);
  return made;
}

let url;

await serve({
  async prepare(where) {
    url = where;
    const queue = boss(url);
    await queue.start();
    await queue.createQueue(QUEUE);
    await queue.stop({ graceful: false });
    return version("pg-boss");
  },

  async cycle(payloads, meter, claim) {
    const queue = boss(url);
    await queue.start();
    const jobs = payloads.map((data) => ({ data }));
    const enqueuing = await timed(() => inLanes((batch) => queue.insert(QUEUE, batch), jobs, BATCH, LANES));
    const handler = async () => {};
    const lane = async () => {
      while (!meter.over) {
        const taken = await queue.fetch(QUEUE, { batchSize: claim ?? BATCH });
        if (taken.length === 0) return;
        for (const job of taken) await handler(job);
        await queue.complete(QUEUE, taken.map((job) => job.id));
        meter.handled(taken.length);
      }
    };
    const running = await timed(async () => {
      meter.start();
      await Promise.all(Array.from({ length: LANES }, lane));
      meter.end();
    });
    await queue.stop({ graceful: false });
    return [enqueuing, running];
  },
});
