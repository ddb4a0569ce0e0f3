// graphile-worker as its own benchmark sets it: 24 jobs at a time, a local queue of 500, completions in batches.
import { inLanes, load, serve, timed, version } from "./protocol.mjs";

const { Logger, makeWorkerUtils, run } = load("graphile-worker");
const BATCH = 1000;
const LANES = 4;

const logger = new Logger(() => (level, message) => level === "error" && console.error(message));

function preset(connectionString, claim) {
  return {
    worker: {
      connectionString,
      logger,
      concurrentJobs: 24,
      maxPoolSize: 25,
      localQueue: { size: claim ?? 500, refetchDelay: { durationMs: 10 } },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  };
}

let url;

await serve({
  async prepare(where) {
    url = where;
    const utils = await makeWorkerUtils({ preset: preset(url) });
    await utils.migrate();
    await utils.release();
    return version("graphile-worker");
  },

  async cycle(payloads, meter, claim) {
    const utils = await makeWorkerUtils({ preset: preset(url) });
    const specs = payloads.map((payload) => ({ identifier: "no_op", payload }));
    const enqueuing = await timed(() => inLanes(utils.addJobs, specs, BATCH, LANES));
    await utils.release();
    const running = await timed(async () => {
      meter.start();
      const worker = await run({ preset: preset(url, claim), taskList: { no_op: async () => meter.handled() } });
      await meter.done;
      await worker.stop();
    });
    return [enqueuing, running];
  },
});
