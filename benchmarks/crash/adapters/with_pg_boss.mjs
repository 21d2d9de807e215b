// /// script
// [tool.crash]
// several = false
// rescue = "job heartbeat 10 s, the least allowed (off by default: then 15 min), looked for every 2 s"
// worker = ["{node}", "{adapter}", "worker"]
// jobs = """
// select data->>'label',
//     case when state in ('created', 'retry') then 'waiting' when state = 'active' then 'running'
//         when state = 'completed' then 'done' else 'dead' end,
//     (retry_count + case when state in ('created', 'retry') then 0 else 1 end) || '/' || (retry_limit + 1)
// from pgboss.job where name in ('work', 'poison')"""
// ///
// pg-boss, one process of four jobs a queue. Two retries are three runs.

import { databaseUrl, load, payloads, poison, poisonLimit, work } from "../accident.mjs";

const { PgBoss } = load("pg-boss");
const what = process.argv[2];

const pace = { superviseIntervalSeconds: 2, monitorIntervalSeconds: 2, maintenanceIntervalSeconds: 2 };
const boss = new PgBoss({
  connectionString: databaseUrl,
  ...(what === "worker" ? pace : { supervise: false, schedule: false }),
});
boss.on("error", (error) => console.error(error.message));
await boss.start();

if (what === "worker") {
  const options = { localConcurrency: 4, pollingIntervalSeconds: 0.5 };
  await boss.work("work", options, ([job]) => work(job.data));
  await boss.work("poison", options, async ([job]) => poison(job.data));
} else {
  const thrice = { retryLimit: 2, retryDelay: 1, heartbeatSeconds: 10 };
  if (what === "setup") {
    await boss.createQueue("work", thrice);
    await boss.createQueue("poison", { ...thrice, expireInSeconds: poisonLimit });
  } else {
    for await (const job of payloads()) await boss.send(job.way ? "poison" : "work", job);
  }
  await boss.stop({ graceful: false, close: true });
  process.exit(0);
}
