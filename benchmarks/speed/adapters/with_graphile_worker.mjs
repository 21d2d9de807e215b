// /// script
// [tool.speed]
// manner = "job by job"
// batches = "nothing"
// crash = "the running jobs run again after four hours"
// worker = ["{node}", "{adapter}", "worker"]
// left = "select count(*) from graphile_worker._private_jobs"
// pace = 0.8
// ///
// graphile-worker, promises in one process, as it is without other settings. What is done leaves the table.

import { atATime, databaseUrl, howMany, load, paced, stamp } from "./stamps.mjs";

const { makeWorkerUtils, run } = load("graphile-worker");
const what = process.argv[2];

if (what === "worker") {
  const worker = { connectionString: databaseUrl, concurrentJobs: atATime, maxPoolSize: atATime + 1 };
  const runner = await run({ preset: { worker }, taskList: { noop: async () => {}, stamp: async (job) => stamp(job) } });
  await runner.promise;
} else {
  const utils = await makeWorkerUtils({ connectionString: databaseUrl });
  if (what === "setup") await utils.migrate();
  else if (what === "enqueue") await utils.addJobs(Array.from({ length: howMany }, () => ({ identifier: "noop", payload: {} })));
  else for await (const number of paced()) await utils.addJob("stamp", { number });
  await utils.release();
}
