"""Hold each child to its deadlines: to be ready, to end its run, to keep its lease.

Invariant: a run is dead before its lease can pass to another (protocol, rule 10). Its deadline counts from when its claim, or
the heartbeat that was answered last, was sent; nothing here asks the database.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import Enum, auto

import structlog

from fencepost.board import BUSY, Phase, Record, boottime
from fencepost.memory import anonymous, megabytes
from fencepost.settings import Settings
from fencepost.supervisor.kill import kill, kill_for_memory, kill_run, let_go, send_group, stop_run, told
from fencepost.supervisor.restart import look_at_note
from fencepost.supervisor.state import Child, Kill, State

log = structlog.get_logger()

CLAIM_MAY_TAKE = 30.0
"""Seconds that a claim may take, at least: a worker that still tries says so more often."""

LEAVING_MAY_TAKE = 3.0
"""Seconds that a worker gets to flush what jobs have left in buffers, to whoever reads them. It holds no job any more."""

DYING_MAY_TAKE = 2.0
"""Seconds from SIGKILL to a worker's end: giving back much memory takes a while."""

ABOUT_TO_CLAIM = 2.0
"""Seconds that a worker which was woken may take to say that it claims: so long it is looked at as one that has a deadline."""

WHILE_ALL_SLEEP = 1.0
"""Seconds between two ticks, at most, while nobody has a deadline: an idle supervisor takes as good as no processor."""

BETWEEN_TICKS = 0.01
"""Seconds between two ticks, at least, whatever workers say of their deadlines."""

UNREADABLE_FOR = 1.0
"""Seconds that a record may be unreadable: longer than it takes to write one, on any machine."""


class Verdict(Enum):
    """What is to be done about a child."""

    leave_it = auto()
    lease_is_over = auto()
    too_much_memory = auto()
    past_max_runtime = auto()
    not_ready_in_time = auto()
    claims_for_too_long = auto()
    leaves_for_too_long = auto()


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of a child at one moment.

    `kept_at` is when the last answered heartbeat for its claim was sent, `memory` the bytes that it has taken for itself.
    """

    now: float
    forked_at: float
    ready: bool
    record: Record
    kept_at: float
    memory: int = 0


def judge(look: Look, settings: Settings) -> Verdict:
    """Decide on one child. What it says of itself is believed only where that can harm nobody but itself."""
    record = look.record
    if not look.ready:
        return Verdict.not_ready_in_time if look.now - look.forked_at > settings.boot_timeout else Verdict.leave_it
    # A claim in the future would be a lease without end.
    claimed_at = min(record.claimed_at, look.now)
    if record.phase is Phase.claiming and look.now >= claimed_at + max(settings.holds_for, CLAIM_MAY_TAKE):
        return Verdict.claims_for_too_long
    if record.phase is Phase.leaving and look.now >= claimed_at + LEAVING_MAY_TAKE:
        return Verdict.leaves_for_too_long
    if record.phase in BUSY:
        if look.now >= max(claimed_at, look.kept_at) + settings.holds_for:
            return Verdict.lease_is_over
        if settings.max_rss and look.memory > settings.max_rss:
            return Verdict.too_much_memory
        if look.now >= claimed_at + max(0.0, record.max_runtime):
            return Verdict.past_max_runtime
    return Verdict.leave_it


def watch(state: State, gap: float) -> None:
    """Look at every child once. `gap` is how long the loop was away, in seconds, if that was longer than it may be."""
    now = boottime()
    for child in state.children():
        child.board.say_again()
        look_at_note(state, child)
        if child.kill is not None:
            _dies(child, now)
            continue
        record = child.record()
        if record is None:
            _unreadable(child, now)
            continue
        child.unreadable_since = None
        if child.held is not None and (record.claim != child.held[0] or record.phase not in BUSY):
            # It ended between our look and the signal. No heartbeat asks about that run any more, so none would let it go on.
            let_go(child, "the run had ended before it was held: its worker goes on")
        kept_at = child.kept[1] if child.kept[0] == record.claim else 0.0
        memory = anonymous(child.pid) - child.memory if state.settings.max_rss and record.phase in BUSY else 0
        match judge(Look(now, child.forked_at, child.ready, record, kept_at, memory), state.settings):
            case Verdict.lease_is_over:
                _lease_is_over(state, child, record, now, gap)
            case Verdict.too_much_memory if child.doomed is None:
                detail = f"it has taken {megabytes(memory)}, and FENCEPOST_MAX_RSS is {megabytes(state.settings.max_rss)}"
                state.spawn(kill_for_memory(child, record.claim, detail))
            case Verdict.past_max_runtime if child.stopping != record.claim and child.held is None:
                state.spawn(stop_run(state, child, record.claim, "max_runtime"))
            case Verdict.not_ready_in_time:
                log.warning("a worker was not ready in time", slot=child.slot, pid=child.pid, after=state.settings.boot_timeout)
                kill(child, Kill("boot_timeout", 0))
            case Verdict.claims_for_too_long:
                log.warning("a worker's claim was not answered: it is killed", slot=child.slot, pid=child.pid)
                kill(child, Kill("its claim was not answered", record.claim))
            case Verdict.leaves_for_too_long:
                log.warning("a worker did not come to leave: it is killed", slot=child.slot, pid=child.pid)
                kill(child, Kill("it did not come to leave", record.claim))
            case _:
                pass


def period(state: State) -> float:
    """Return the seconds until the next tick.

    A worker that sleeps has no deadline, and claims when it is woken: then a tick comes at once. One that claims later than
    that, or by itself, is seen at the next, before the lease that it was given is half over. A run that comes to its max
    runtime is asked to stop then, and not a tick later.
    """
    now, settings = boottime(), state.settings
    all_sleep = all(slot.child is not None and _sleeps(slot.child, now) for slot in state.slots)
    if not all_sleep or state.strays or state.draining:
        ends = (record.claimed_at + record.max_runtime - now for _, record in state.busy())
        return min([settings.check_period, *(max(ahead, BETWEEN_TICKS) for ahead in ends if ahead > 0)])
    return max(settings.check_period, min(WHILE_ALL_SLEEP, settings.holds_for / 4))


def _sleeps(child: Child, now: float) -> bool:
    if not child.ready or child.leaving or child.kill is not None or now - child.woken_at < ABOUT_TO_CLAIM:
        return False
    record = child.record()
    return record is not None and record.phase is Phase.idle


def _dies(child: Child, now: float) -> None:
    if not child.outlives_its_kill and now - child.killed_at > DYING_MAY_TAKE:
        # In the kernel, waiting for a disk or a network share. What it holds is not given to another while it lives.
        child.outlives_its_kill = True
        log.error(
            "SIGKILL does not end a worker: slot and lease stay with it, as long as it lives",
            slot=child.slot,
            worker=child.name,
            pid=child.pid,
            reason=child.kill.reason if child.kill is not None else None,
            **told(child),
        )


def _lease_is_over(state: State, child: Child, record: Record, now: float, gap: float) -> None:
    if gap and child.held is None:
        # We were away, frozen perhaps with the whole host. Whether the lease has passed on is not known: nothing runs until
        # a heartbeat has told (protocol, rule 12).
        log.warning("away for too long: the run is held until the database has told", gap=round(gap, 3), **told(child))
        child.held = (record.claim, now)
        send_group(child, signal.SIGSTOP)
        state.beat_now.set()
    elif child.held is None or now - child.held[1] > state.settings.heartbeat_limit:
        log.warning("the lease can't be kept: the run is killed", slot=child.slot, worker=child.name, **told(child))
        state.spawn(kill_run(child, Kill("lease", record.claim)))


def _unreadable(child: Child, now: float) -> None:
    if child.unreadable_since is None:
        child.unreadable_since = now
    elif now - child.unreadable_since > UNREADABLE_FOR:
        # Nothing is known of its run any more, so it can't be kept to any deadline. Nor can one that was stopped as it wrote,
        # to be held: no heartbeat asks about that.
        log.error("a worker's record can't be read: it is killed", slot=child.slot, worker=child.name, pid=child.pid)
        kill(child, Kill("its worker's record was overwritten", -1))
