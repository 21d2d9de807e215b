"""Wake as many idle workers as there is work.

A notification says that something was enqueued, or that someone is cancelled. It wakes one worker at once; how much work there
is, is counted behind it, once for all notifications that come together. They have no acknowledgement, so a poll and the
heartbeat stand behind them. Idle workers send nothing themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import psycopg
import structlog
import tenacity

from fencepost.board import boottime
from fencepost.jobs.look import Work
from fencepost.jobs.sql import statement
from fencepost.jobs.supervisors import notify
from fencepost.supervisor.database import ONLY_READS, Away, Conn, connect, limited, only_reads
from fencepost.supervisor.look import look_for_work
from fencepost.supervisor.state import Child, State

log = structlog.get_logger()

TOGETHER = 0.02
"""Seconds in which notifications count as one reason to look how much work there is."""

SETTLED = 0.01
"""Seconds after which those whom a notification has woken have claimed: what waits then is more than that."""

NOBODY_IDLE = 0.03
"""Seconds until the board is looked at again where no worker was idle. Costs no statement."""

BUSY_FOR = 1.0
"""Seconds without an idle worker after which we need not be told of what is enqueued: it slows down who enqueues."""

SOON = 0.05
LATER_EACH_TIME = 4
"""How soon to look, and how many times later each time, for what was enqueued while nobody had to tell, and committed since."""

LOOK_AGAIN = 1.0
"""Seconds, at most, until work is looked for again where that failed: what was notified of meanwhile is not told twice."""

ASK_AGAIN = 0.5
"""Seconds after which the heartbeat asks once more who is cancelled."""

ASK_LISTENED_TO = 30.0
"""Seconds, at most, until the server that is listened to is asked whether it is still the right one."""

ANSWERED_WITHIN = 10.0
"""Seconds until a session that does not answer is given up, and another one listens."""

BETWEEN_CONNECTS = tenacity.wait_random(0.5, 2.0)


HEARS_WITHIN = 2.0
"""Seconds that a notification may take."""

LATER = 10
"""How many times later listening is tried again where it does not work: it is not known to be worth it."""


class Deaf(Exception):
    """The connection that listens does not hear of what happens where the jobs are."""


class SentLater(Exception):
    """Nothing can be sent just now, and so it is not known what is heard."""


async def poll(state: State) -> None:
    """Look how many due jobs wait, and wake as many: at each period, after notifications, and when the next one is due."""
    last = boottime()
    pause = 0.0
    busy_since: float | None = None
    while True:
        try:
            async with asyncio.timeout(pause):
                await state.look_now.wait()
            await asyncio.sleep(max(SETTLED, last + TOGETHER - boottime()))
        except TimeoutError:
            pass
        state.look_now.clear()
        last = boottime()
        pause = state.settings.poll
        idle = len(state.idle())
        busy_since = None if idle else busy_since or last
        _want_to_be_told(state, wanted=busy_since is None or last - busy_since < BUSY_FOR)
        if not idle or state.kinds is None or state.draining or state.paused:
            # Nobody to wake, and so nothing to ask; but soon, when there is: what is due next is not known until then.
            pause = min(pause, NOBODY_IDLE)
            continue
        try:
            found = await look_for_work(state, Work(state.settings.queues, state.kinds, idle))
        except Away:
            pause = min(pause, LOOK_AGAIN)
            continue
        except psycopg.Error as error:
            log.warning("a poll failed", error=str(error).strip())
            pause = min(pause, LOOK_AGAIN)
            continue
        wake(state, found.due)
        if state.listening and not state.told:
            # Our row does not say it yet.
            pause = min(pause, LOOK_AGAIN)
        if found.next_due_in is not None:
            pause = min(pause, max(0.001, found.next_due_in))


def _want_to_be_told(state: State, *, wanted: bool) -> None:
    if wanted != state.wants_to_be_told:
        state.wants_to_be_told = wanted
        state.register_now.set()


async def look_for_what_was_not_told(state: State) -> None:
    """Look now, and again: what was enqueued before our row said that we are to be told may be committed any time later.

    Less and less often until the next poll, so that what took long to be committed waits for a few times as long at most.
    """
    pause = SOON
    state.look_now.set()
    while pause < state.settings.poll:
        await asyncio.sleep(pause)
        state.look_now.set()
        pause *= LATER_EACH_TIME


def wake(state: State, count: int) -> None:
    """Wake up to `count` idle workers."""
    if count > 0:
        for child in _called(state)[:count]:
            _rouse(state, child)


class Sleepers:
    """Whom notifications wake, one each.

    Found once for all that come together: where a thousand jobs are enqueued one by one, boards must not be read as often.
    """

    def __init__(self) -> None:
        self._found_at = float("-inf")
        self._left: list[Child] = []

    def wake_one(self, state: State) -> None:
        """Wake one of them, if one is left."""
        now = boottime()
        if now - self._found_at >= TOGETHER:
            self._found_at, self._left = now, _called(state)[::-1]
        if self._left and not (child := self._left.pop()).gone:
            _rouse(state, child)


def _called(state: State) -> list[Child]:
    """Return the idle workers, after all have counted the call: one that is about to sleep sees that, and looks again."""
    if state.draining or state.paused:
        return []
    for child in state.children():
        child.board.wake()
    return state.idle()


def _rouse(state: State, child: Child) -> None:
    child.woken_at = boottime()
    if state.all_sleep:
        # From now on it may hold a job, and that a deadline.
        state.changed.set()
    child.say(b"w")


async def listen(state: State) -> None:
    """Listen for what is enqueued and cancelled, on a connection of its own, and set it up again whenever it is lost."""
    state_of_try = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})
    conninfo = state.settings.listen_conninfo(f"fencepost {state.name} listen")
    apart = bool(state.settings.listen_url.get_secret_value())
    again: asyncio.TimerHandle | None = None
    said = ""
    while True:
        conn: Conn | None = None
        try:
            deadline = boottime() + ANSWERED_WITHIN
            conn = await limited(connect(conninfo), deadline, None)
            await limited(conn.execute(statement("listen", state.settings.schema)), deadline, conn)
            if apart:
                await _make_sure_that_it_hears(state, conn, deadline)
                if said:
                    log.info("listening by FENCEPOST_LISTEN_URL now")
            said = ""
            state.listening = True
            state.register_now.set()
            # What was sent while nobody listened is not sent again.
            state.look_now.set()
            state.beat_now.set()
            sleepers = Sleepers()
            async for queue in _notifications(conn, state):
                if not queue:
                    again = _ask_who_is_cancelled(state, again)
                elif queue in state.settings.queues or "*" in state.settings.queues:
                    sleepers.wake_one(state)
                    state.look_now.set()
        except SentLater as error:
            log.debug("not listening", error=str(error))
        except (psycopg.Error, Away, Deaf) as error:
            if isinstance(error, Away):
                # Abandoned with its connection, which is closed when the driver has let go of it.
                conn = None
            text = str(error).strip()
            log.debug("not listening", error=text)
            if apart and not said:
                said = text
                log.warning("FENCEPOST_LISTEN_URL does not tell of jobs: they wait for a poll", error=text)
        finally:
            state.listening = False
            if conn is not None:
                await conn.close()
        await asyncio.sleep(BETWEEN_CONNECTS(state_of_try) * (LATER if said else 1))


async def _make_sure_that_it_hears(state: State, conn: Conn, deadline: float) -> None:
    """Send a notification where the jobs are, and wait until it has come. Raises Deaf if it does not.

    On a channel of this supervisor's own, which wakes no other one.
    """
    await limited(conn.execute(statement("listen", state.name)), deadline, conn)
    try:
        await state.duty.run(partial(notify, schema=state.settings.schema, channel=state.name))
    except Away as error:
        raise SentLater(str(error)) from None
    async with contextlib.aclosing(conn.notifies(timeout=HEARS_WITHIN)) as heard:
        async for notification in heard:
            if notification.channel == state.name:
                return
    await limited(conn.execute(statement("unlisten", state.name)), boottime() + ANSWERED_WITHIN, conn)
    raise Deaf("what is sent in FENCEPOST_DATABASE_URL is not heard there: another database, or a pooler?")


def _ask_who_is_cancelled(state: State, again: asyncio.TimerHandle | None) -> asyncio.TimerHandle:
    """Have the heartbeat ask now, and once more: the run may not be on the board yet, or its row be locked just now."""
    if again is not None:
        again.cancel()
    state.beat_now.set()
    return asyncio.get_running_loop().call_later(ASK_AGAIN, state.beat_now.set)


async def _notifications(conn: Conn, state: State) -> AsyncIterator[str]:
    # What comes beside the answer to a statement.
    beside: list[str] = []
    conn.add_notify_handler(lambda told: beside.append(told.payload))
    while True:
        # Asked now and then: a connection whose other end has vanished shows it only when something is asked of it, and one to
        # a server that only reads by now would go on in silence, while jobs are enqueued on the one that took over.
        ask_at = boottime() + min(ASK_LISTENED_TO, state.settings.heartbeat)
        while (left := ask_at - boottime()) > 0:
            # Not by the driver's own way, which looks ten times a second whether it is to go on waiting.
            await _readable(conn, left)
            conn.pgconn.consume_input()
            while (told := conn.pgconn.notifies()) is not None:
                yield told.extra.decode(errors="replace")
        await limited(conn.execute(""), boottime() + ANSWERED_WITHIN, conn)
        while beside:
            yield beside.pop(0)
        if only_reads(conn):
            await conn.close()
            raise Away(ONLY_READS)


async def _readable(conn: Conn, within: float) -> None:
    """Wait until something can be read of the connection, at most for as many seconds."""
    loop = asyncio.get_running_loop()
    woken = asyncio.Event()
    timer = loop.call_later(within, woken.set)
    loop.add_reader(conn.fileno(), woken.set)
    try:
        await woken.wait()
    finally:
        loop.remove_reader(conn.fileno())
        timer.cancel()
