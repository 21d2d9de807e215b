// The same as stamps.py, for the queues of Node.

import { appendFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

export const databaseUrl = process.env.DATABASE_URL;
export const atATime = Number(process.env.AT_A_TIME ?? 1);
export const howMany = Number(process.argv[3]);

// The packages lie in a folder of the peer's own.
export const load = createRequire(`${process.env.PEER_HOME}/`);

export function stamp({ number }) {
  const at = process.hrtime.bigint();
  appendFileSync(process.env.JOBS_LOG, `${number} ${at}\n`);
}

export async function* paced() {
  const given = [];
  for (let number = 0; number < howMany; number += 1) {
    given.push(Number(process.hrtime.bigint()));
    yield number;
    await sleep(50 + 50 * Math.random());
  }
  console.log(JSON.stringify(given));
}
