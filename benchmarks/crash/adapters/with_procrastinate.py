# /// script
# [tool.crash]
# several = false
# rescue = "stalled after 10 s (default 30 s), looked for every 5 s by the documented periodic task"
# setup = [["{bin}/procrastinate", "--app=with_procrastinate.app", "schema", "--apply"]]
# worker = ["{bin}/procrastinate", "--app=with_procrastinate.app", "worker", "--concurrency=4"]
# jobs = """
# select args->>'label',
#     case status when 'todo' then 'waiting' when 'doing' then 'running' when 'succeeded' then 'done' else 'dead' end,
#     attempts::text
# from procrastinate_jobs where queue_name = 'jobs'"""
# ///
"""procrastinate, with the periodic task for stalled jobs that its documentation gives.

Its retry strategy counts retries, so that two of them are three runs. The documented task asks of no attempts.
"""

from __future__ import annotations

import accident
from procrastinate import App, JobContext, PsycopgConnector, RetryStrategy

STALLED = 10

app = App(
    connector=PsycopgConnector(conninfo=accident.DATABASE_URL),
    worker_defaults={"update_heartbeat_interval": 2, "stalled_worker_timeout": STALLED},
)
thrice = RetryStrategy(max_attempts=2, wait=1)


@app.task(queue="jobs", retry=thrice)
async def work(**payload: object) -> None:
    await accident.work_async(**payload)


@app.task(queue="jobs", retry=thrice)
def poison(**payload: object) -> None:
    accident.poison(**payload)


@app.periodic(cron="* * * * * */5")
@app.task(queue="care", queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(context: JobContext, timestamp: int) -> None:  # noqa: ARG001  # a periodic task is given both
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED):
        await app.job_manager.retry_job(job)


if __name__ == "__main__":
    from with_procrastinate import app, poison, work  # so that the tasks are not called __main__

    with app.open():
        for payload in accident.payloads():
            (poison if "way" in payload else work).defer(**payload)
