// /// script
// [tool.speed]
// manner = "batches"
// batches = "claims of 500 for each of the workers, one after the other while there are as many; each batch is ended as one"
// crash = "all jobs of the claimed batches, done ones too, run again after 15 min"
// worker = ["{node}", "{adapter}", "worker"]
// left = "select count(*) from pgboss.job where name = 'noop' and state <> 'completed'"
// pace = 5.0
// ///
// pg-boss, as many workers in one process as are asked for, with batches: job by job each of them takes one each half second.

import { atATime, databaseUrl, howMany, load, paced, stamp } from "./stamps.mjs";

const { PgBoss } = load("pg-boss");
const what = process.argv[2];

const role = what === "worker" ? { useListenNotify: true } : { supervise: false, schedule: false };
const boss = new PgBoss({ connectionString: databaseUrl, ...role });
boss.on("error", (error) => console.error(error.message));
await boss.start();

if (what === "worker") {
  const options = { localConcurrency: atATime, pollingIntervalSeconds: 0.5, batchSize: 500, burstWhenBatchFull: true };
  await boss.work("noop", options, async () => {});
  const woken = { localConcurrency: atATime, pollingIntervalSeconds: 0.5 };
  await boss.work("stamp", woken, async (jobs) => jobs.forEach((job) => stamp(job.data)));
} else {
  if (what === "setup") {
    await boss.createQueue("noop");
    await boss.createQueue("stamp", { notify: true });
  } else if (what === "enqueue") {
    for (let done = 0; done < howMany; done += 1000)
      await boss.insert("noop", Array.from({ length: Math.min(1000, howMany - done) }, () => ({})));
  } else for await (const number of paced()) await boss.send("stamp", { number });
  await boss.stop({ graceful: false, close: true });
  process.exit(0);
}
