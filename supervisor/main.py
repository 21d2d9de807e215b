"""The supervisor: one thread, one event loop, and a duty a module.

    wait until nothing refuses the start
    fork a worker for each slot
    reap, watch, refill   at each tick, without the database
    heartbeat, sweep, poll, listen, register, prune   each with its own way to the database, and its own troubles
    drain

Invariant: a duty that fails is logged and tried again. None can end the process or hold up another.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import traceback
from collections.abc import Awaitable, Callable

import psycopg
import structlog
from setproctitle import setproctitle

from fencepost import checks
from fencepost import settings as settings_module
from fencepost.board import boottime
from fencepost.jobs.sql import read_all
from fencepost.logs import sink
from fencepost.settings import Settings
from fencepost.supervisor import cgroup, container
from fencepost.supervisor.database import Away, BehindPooler, Link, Resolver
from fencepost.supervisor.drain import drain
from fencepost.supervisor.fork import become_subreaper, preload
from fencepost.supervisor.heartbeat import beat
from fencepost.supervisor.kill import kill
from fencepost.supervisor.leases import LOOK_FROM_AGE, Leases
from fencepost.supervisor.limits import Limits
from fencepost.supervisor.prune import prune_finished
from fencepost.supervisor.reap import own_children, reap
from fencepost.supervisor.register import keep_row, remove_row
from fencepost.supervisor.replace import replace_workers
from fencepost.supervisor.restart import fill_slots
from fencepost.supervisor.signals import hold_signals, take_signals
from fencepost.supervisor.slots import allow_descriptors
from fencepost.supervisor.stall import Stall
from fencepost.supervisor.state import Kill, Slot, State
from fencepost.supervisor.sweep import sweep_expired
from fencepost.supervisor.wake import listen, poll
from fencepost.supervisor.watch import period, watch

log = structlog.get_logger()

REFUSED = 78
STOPPED_JOBS = 75
STATEMENT_LIMIT = 5.0
LAST_WORD_MAY_TAKE = 0.3
BETWEEN_LOOKS_AT_START = 1.0
GRANTS_MAY_TAKE = 10.0


def run(settings: Settings) -> int:
    """Run until drained, and return the exit code: 0, 70, 75 or 78."""
    held = hold_signals()
    setproctitle("fencepost: supervisor")
    sink.own_description()
    become_subreaper()
    cgroup.start()
    # Before the first fork: the workers have them too.
    read_all(settings.schema)
    allow_descriptors(settings.concurrency)
    if not settings.preload:
        return _supervise(settings, held)
    if refused := preload(settings):
        code, reason = refused
        sink.write(f"fencepost: {reason}\n")
    else:
        code = _supervise(settings, held)
    # Not by returning: Python would wait for threads, and for what the handlers' modules want to be done at its end.
    os._exit(code)


def _supervise(settings: Settings, held: list[int]) -> int:
    # The loop is named: a module that was preloaded may have set a policy for others.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(_run(settings, held))


async def _run(settings: Settings, held: list[int]) -> int:
    asyncio.get_running_loop().set_default_executor(Resolver())
    name = f"s{secrets.token_hex(8)}"
    structlog.contextvars.bind_contextvars(supervisor=name)
    state = State(
        settings=settings,
        name=name,
        slots=[Slot(number) for number in range(1, settings.concurrency + 1)],
        duty=Link(settings, "duty", name, STATEMENT_LIMIT),
        bookings_link=Link(settings, "booking", name, STATEMENT_LIMIT),
        beats=Link(settings, "heartbeat", name, settings.heartbeat_limit),
        # A lease that is shorter than ours is seen late by no more than this.
        leases=Leases(age=min(LOOK_FROM_AGE, settings.lease / 2)),
    )
    state.born_with = frozenset(own_children())
    state.reap = lambda: reap(state, death_told=True)
    take_signals(state, held)
    mode = _mode(settings)
    log.info("the supervisor starts", pid=os.getpid(), workers=settings.concurrency, queues=list(settings.queues), mode=mode)
    if little := container.warnings(container.look(), settings, None):
        log.warning("the container allows little for these settings", little=little)
    for unknown in settings_module.unknown_names():
        log.warning("this variable is no setting; is it misspelt?", variable=unknown)
    duties: list[asyncio.Task[None]] = []
    try:
        await _until_nothing_refuses(state)
        if not state.draining and state.exit_code is None:
            duties = [asyncio.create_task(_for_ever(duty, state), name=duty.__name__) for duty in _duties(settings)]
            await _tick_until_done(state)
        await _leave(state)
    finally:
        for task in duties:
            task.cancel()
        await asyncio.gather(*duties, return_exceptions=True)
        for link in (state.duty, state.bookings_link, state.beats):
            await link.close()
    code = state.exit_code if state.exit_code is not None else STOPPED_JOBS if state.stopped_jobs else 0
    if state.exit_reason:
        sink.write(f"fencepost: {state.exit_reason}\n")
    log.info("the supervisor leaves", exit_code=code)
    return code


def _duties(settings: Settings) -> list[Callable[[State], Awaitable[None]]]:
    duties: list[Callable[[State], Awaitable[None]]] = [beat, sweep_expired, poll, keep_row, replace_workers]
    if settings.listens:
        duties.append(listen)
    if settings.retention:
        duties.append(prune_finished)
    return duties


def _mode(settings: Settings) -> str:
    if settings.listen_url.get_secret_value():
        return "listening by FENCEPOST_LISTEN_URL"
    return "listening" if settings.listens else "polling: FENCEPOST_POOLER=transaction, and FENCEPOST_LISTEN_URL is not set"


async def _until_nothing_refuses(state: State) -> None:
    """Wait for the database and its schema; leave where something refuses the start that waiting does not cure.

    Where it has waited for the schema, that has just been made, and the grants on it may be on their way.
    """
    said = ""
    granted_by = 0.0
    while not state.draining:
        trouble = ""
        try:
            refused, warned = await state.duty.run(lambda conn: _looked(conn, state.settings))
        except BehindPooler as pooled:
            state.leave(REFUSED, str(pooled))
            return
        except Away:
            pass  # said by the link
        except checks.SchemaMissing as missing:
            trouble = str(missing)
            granted_by = boottime() + GRANTS_MAY_TAKE
        except psycopg.Error as error:
            trouble = str(error).strip()
        else:
            said_of_refusals = "\n".join(f"{refusal.what}: {refusal.cure}" for refusal in refused)
            if not refused or boottime() >= granted_by:
                for line in warned:
                    log.warning(line)
                if refused:
                    state.leave(REFUSED, said_of_refusals)
                return
            trouble = said_of_refusals
        if trouble != said:
            said = trouble
            if trouble:
                log.warning("waiting to start", reason=trouble)
        await asyncio.sleep(BETWEEN_LOOKS_AT_START)


async def _looked(conn: psycopg.AsyncConnection[object], settings: Settings) -> tuple[list[checks.Refusal], list[str]]:
    return await checks.refusals(conn, settings), await checks.warnings(conn, settings)


async def _tick_until_done(state: State) -> None:
    """Tick until the drain is through, or the supervisor has to leave."""
    last, expected = boottime(), 0.0
    # From before the first worker is forked: it may claim while this tick is not yet over.
    stall = Stall()
    stall.put_off(state)
    limits = Limits()
    draining: asyncio.Task[None] | None = None
    while state.exit_code is None and not (draining is not None and draining.done()):
        now = boottime()
        # Longer than this and deadlines may have passed that nobody held (protocol, rules 10 and 12).
        gap = now - last if now - last > expected + state.settings.margin / 2 else 0.0
        last = now
        if gap:
            log.warning("the supervisor was not scheduled for a while", seconds=round(gap, 3))
        for duty in (
            limits.keep,
            cgroup.look,
            lambda: reap(state),
            lambda: watch(state, gap),  # noqa: B023  # called in this turn of the loop
            lambda: fill_slots(state),
            lambda: stall.put_off(state),
        ):
            _once(duty)
        if state.draining and draining is None:
            draining = asyncio.create_task(drain(state))
        state.changed.clear()
        expected = period(state)
        state.all_sleep = expected > state.settings.check_period
        # Not by a time limit, which is an exception each time: most ticks end by it.
        end_of_period = asyncio.get_running_loop().call_later(expected, state.changed.set)
        await state.changed.wait()
        end_of_period.cancel()
    # Whoever is left is killed next, with nothing in between.
    stall.off()
    if draining is not None and draining.done() and draining.exception() is not None:
        log.error("the drain failed", error=str(draining.exception()))


async def _leave(state: State) -> None:
    """End every child that is left, and take our row away."""
    for child in state.children():
        kill(child, Kill("drain", -1))
    # A kill that the drain has sent just now may have used up what it has: also of one that SIGKILL does not end.
    until = min(boottime() + 1.0, state.gone_at)
    # One that has outlived its SIGKILL is not waited for once more.
    while any(not child.outlives_its_kill for child in state.children()) and boottime() < until:
        reap(state)
        await asyncio.sleep(0.01)
    if children := state.children():
        log.error("children that SIGKILL does not end are left behind", pids=[child.pid for child in children])
        state.stopped_jobs = True
    try:
        async with asyncio.timeout(LAST_WORD_MAY_TAKE):
            await remove_row(state)
    except (Away, psycopg.Error, TimeoutError):
        pass  # the next supervisor that leaves takes it away


def _once(duty: Callable[[], None]) -> None:
    try:
        duty()
    except Exception:  # noqa: BLE001  # the tick goes on, whatever one of its parts met
        log.error("a duty failed", error=traceback.format_exc()[-4000:])


async def _for_ever(duty: Callable[[State], Awaitable[None]], state: State) -> None:
    while True:
        try:
            await duty(state)
        except asyncio.CancelledError:
            raise
        except Exception:  # noqa: BLE001  # a duty goes on, whatever it met
            log.error("a duty failed and is begun again", duty=duty.__name__, error=traceback.format_exc()[-4000:])
        await asyncio.sleep(1.0)
