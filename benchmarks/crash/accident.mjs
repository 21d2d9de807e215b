// The same as accident.py, for the queues of Node.

import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

export const databaseUrl = process.env.DATABASE_URL;
export const poisonLimit = 5;

// The packages lie in a folder of the peer's own.
export const load = createRequire(`${process.env.PEER_HOME}/`);

const tick = 200;
let runs = 0;

function begin(label) {
  const run = `${process.pid}.${(runs += 1)}`;
  const note = (what) =>
    appendFileSync(process.env.JOBS_LOG, `${(Date.now() / 1000).toFixed(3)} ${process.pid} ${run} ${label} ${what}\n`);
  note("start");
  return note;
}

export async function work({ label, ticks }) {
  const note = begin(label);
  for (let i = 0; i < ticks; i += 1) {
    await sleep(tick);
    note("tick");
  }
  note("end");
}

export function poison({ label, way }) {
  begin(label);
  if (way === "exit") process.exit(1);
  if (way === "segfault") process.kill(process.pid, "SIGSEGV");
  for (;;);
}

export async function* payloads() {
  for (const one of JSON.parse(process.argv[3])) {
    if (!one.after) yield one;
    else while (!one.after.every((label) => ticksOf(label) >= one.ticks)) await sleep(50);
  }
}

function ticksOf(label) {
  const log = process.env.JOBS_LOG;
  return existsSync(log) ? readFileSync(log, "utf8").split(` ${label} tick\n`).length - 1 : 0;
}
