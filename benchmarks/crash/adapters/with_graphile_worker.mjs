// /// script
// [tool.crash]
// several = false
// rescue = "4 h, fixed; here the clock of a lock is put forward by 4 h once it is 10 s old"
// worker = ["{node}", "{adapter}", "worker"]
// jobs = """
// select payload->>'label',
//     case when locked_at is not null then 'running' when attempts >= max_attempts then 'dead' else 'waiting' end,
//     attempts || '/' || max_attempts
// from graphile_worker._private_jobs"""
// age = """
// update graphile_worker._private_jobs set locked_at = locked_at - interval '4 hours'
// where locked_at between now() - interval '3 hours' and now() - interval '10 seconds'"""
// ///
// graphile-worker, one process of four jobs. What is done leaves the table.

import { databaseUrl, load, payloads, poison, work } from "../accident.mjs";

const { makeWorkerUtils, run } = load("graphile-worker");
const what = process.argv[2];

if (what === "worker") {
  const worker = {
    connectionString: databaseUrl,
    concurrentJobs: 4,
    minResetLockedInterval: 2000,
    maxResetLockedInterval: 3000,
  };
  const runner = await run({ preset: { worker }, taskList: { work, poison: async (job) => poison(job) } });
  await runner.promise;
} else {
  const utils = await makeWorkerUtils({ connectionString: databaseUrl });
  if (what === "setup") await utils.migrate();
  else for await (const job of payloads()) await utils.addJob(job.way ? "poison" : "work", job, { maxAttempts: 3 });
  await utils.release();
}
