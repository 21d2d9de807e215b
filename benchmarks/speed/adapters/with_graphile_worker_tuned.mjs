// /// script
// [tool.speed]
// manner = "batches"
// batches = "claims of 500; what has ended is written as one statement whenever the last one is answered"
// crash = "the 500 claimed jobs, and those done whose end was not written yet, run again after four hours"
// worker = ["{node}", "{adapter}", "worker"]
// left = "select count(*) from graphile_worker._private_jobs"
// pace = 5.0
// ///
// graphile-worker with the settings that its documentation gives for many short jobs: a local queue, and ends in batches.

import { atATime, databaseUrl, howMany, load, paced, stamp } from "./stamps.mjs";

const { makeWorkerUtils, run } = load("graphile-worker");
const what = process.argv[2];

if (what === "worker") {
  const batches = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
  const worker = { connectionString: databaseUrl, concurrentJobs: atATime, maxPoolSize: atATime + 1, ...batches };
  const runner = await run({ preset: { worker }, taskList: { noop: async () => {}, stamp: async (job) => stamp(job) } });
  await runner.promise;
} else {
  const utils = await makeWorkerUtils({ connectionString: databaseUrl });
  if (what === "setup") await utils.migrate();
  else if (what === "enqueue") await utils.addJobs(Array.from({ length: howMany }, () => ({ identifier: "noop", payload: {} })));
  else for await (const number of paced()) await utils.addJob("stamp", { number });
  await utils.release();
}
