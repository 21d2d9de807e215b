"""What signals do to the slots: as many, other workers in them, or a pause. Each says what it did."""

from __future__ import annotations

import resource

import structlog

from fencepost.settings import MOST_WORKERS
from fencepost.supervisor.kill import kill
from fencepost.supervisor.restart import look_at_note
from fencepost.supervisor.state import TRIAL, Kill, Slot, State

log = structlog.get_logger()

DESCRIPTORS_A_CHILD = 4
DESCRIPTORS_BESIDE = 100


def replace_all(state: State) -> None:
    """SIGHUP: have all workers replaced."""
    log.info("SIGHUP: the workers are replaced, one at a time, each after its job", workers=len(state.children()))
    state.replace_now.set()


def one_more(state: State) -> None:
    """SIGTTIN: add a slot, or keep one that was about to go."""
    leaving = [slot for slot in state.slots if slot.closing and slot.number != TRIAL]
    if leaving:
        leaving[0].closing = False
    elif _wanted(state) == MOST_WORKERS:
        log.info("SIGTTIN: there are as many workers as there can be", workers=MOST_WORKERS)
        return
    else:
        numbers = {slot.number for slot in state.slots}
        state.slots.append(Slot(min(set(range(1, len(numbers) + 2)) - numbers)))
        state.slots.sort(key=lambda slot: slot.number)
        allow_descriptors(len(state.slots))
    log.info("SIGTTIN: one worker more", workers=_wanted(state))
    state.changed.set()


def one_fewer(state: State) -> None:
    """SIGTTOU: close the last slot, after its worker's job."""
    if _wanted(state) <= 1:
        log.info("SIGTTOU: the last worker stays; SIGTSTP stops claiming", workers=1)
        return
    slot = next(slot for slot in reversed(state.slots) if not slot.closing)
    slot.closing = True
    if slot.child is not None:
        # It may have become ready, and claimed a job, since the last tick.
        look_at_note(state, slot.child)
    if slot.child is None:
        state.slots.remove(slot)
    elif slot.child.ready:
        slot.child.leave()
    else:
        kill(slot.child, Kill("one worker fewer", 0))
    log.info("SIGTTOU: one worker fewer, after its job", slot=slot.number, workers=_wanted(state))


def pause(state: State) -> None:
    """SIGTSTP: have nothing claimed any more; what runs goes on."""
    state.paused = True
    for child in state.children():
        child.say(b"p", pause=True)
    state.register_now.set()
    log.info("SIGTSTP: nothing is claimed until SIGCONT; running jobs go on", running=len(state.busy()))


def go_on(state: State) -> None:
    """SIGCONT: have jobs claimed again."""
    if not state.paused:
        log.info("SIGCONT: claiming was not stopped, nothing to do")
        return
    state.paused = False
    for child in state.children():
        child.say(b"g", pause=False)
    state.register_now.set()
    log.info("SIGCONT: jobs are claimed again")


def allow_descriptors(workers: int) -> None:
    """Have descriptors for all slots, with some to spare for connections, as far as we may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = workers * DESCRIPTORS_A_CHILD + DESCRIPTORS_BESIDE
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard))


def _wanted(state: State) -> int:
    return sum(not slot.closing for slot in state.slots)
