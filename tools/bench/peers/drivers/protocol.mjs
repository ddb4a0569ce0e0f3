// The protocol of protocol.py for queues in JavaScript. Their packages are those of the working folder.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// A package, and its version.
export const load = createRequire(`${process.cwd()}/`);
export const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")).version;

// Counts a run's jobs. `done` resolves after the last one, or when the time is over.
export class Meter {
  constructor(jobs, slices, seconds) {
    this.jobs = jobs;
    this.seconds = seconds;
    this.count = 0;
    this.over = false;
    this.size = Math.max(Math.floor(jobs / slices), 1);
    this.next = this.size;
    this.times = [];
    this.done = new Promise((resolve) => (this.finish = resolve));
  }

  start() {
    this.times.push(performance.now());
    this.timer = setTimeout(() => this.end(), this.seconds * 1000);
  }

  handled(count = 1) {
    this.count += count;
    while (this.count >= this.next) {
      this.times.push(performance.now());
      this.next += this.size;
    }
    if (this.count >= this.jobs) this.end();
  }

  end() {
    clearTimeout(this.timer);
    this.over = true;
    this.finish();
  }

  rates() {
    return this.times.slice(1).map((time, i) => (this.size * 1000) / Math.max(time - this.times[i], 0.001));
  }
}

// Objects that are `size` bytes of JSON each, with a little that varies.
function payloads(jobs, size) {
  const frame = JSON.stringify({ id: "00000000", text: "" }).length + 2; // as Python writes it, with two blanks
  const hex = () => Math.floor(Math.random() * 2 ** 32).toString(16).padStart(8, "0");
  let text = "";
  while (text.length < size) text += hex();
  text = text.slice(0, Math.max(size - frame, 1));
  return Array.from({ length: jobs }, (_, i) => ({ id: i.toString(16).padStart(8, "0"), text }));
}

// Enqueue all jobs, `batch` in each call, `lanes` calls at once.
export async function inLanes(enqueue, jobs, batch, lanes) {
  let next = 0;
  const lane = async () => {
    while (next < jobs.length) await enqueue(jobs.slice(next, (next += batch)));
  };
  await Promise.all(Array.from({ length: lanes }, lane));
}

// Answer the requests of stdin until it closes. `driver` has prepare(url) and cycle(payloads, meter, claim), as in protocol.py.
export async function serve(driver) {
  const write = process.stdout.write.bind(process.stdout);
  process.stdout.write = process.stderr.write.bind(process.stderr); // what a library prints is no answer
  for await (const line of createInterface({ input: process.stdin })) {
    let answer;
    try {
      answer = await reply(driver, JSON.parse(line));
    } catch (error) {
      console.error(error);
      answer = { error: String(error) };
    }
    write(`${JSON.stringify(answer)}\n`);
  }
  process.exit();
}

async function reply(driver, request) {
  if (request.verb === "prepare") return { version: await driver.prepare(request.url) };
  const meter = new Meter(request.jobs, request.slices, request.seconds);
  const jobs = payloads(request.jobs, request.payload);
  const [enqueuing, running] = await driver.cycle(jobs, meter, request.claim);
  const enqueued = request.jobs / enqueuing;
  const ran = meter.count / running;
  return {
    jobs: meter.count,
    enqueue_per_s: enqueued,
    run_per_s: ran,
    cycle_per_s: ran && 1 / (1 / enqueued + 1 / ran),
    slices: meter.rates(),
  };
}

export async function timed(action) {
  const began = performance.now();
  await action();
  return (performance.now() - began) / 1000;
}
