"""Reap what has died: workers, and as their subreaper whoever else comes to us.

Death is known from the kernel (pidfd, and SIGCHLD where there is none), never from the line: a program of the job may hold
that open. The group is killed while its dead leader still holds the number; later the number may be a stranger's.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import structlog

from fencepost.board import boottime
from fencepost.supervisor import cgroup
from fencepost.supervisor.deaths import STATUS_LOST, DeadWorker, Death, death_of, ended_itself, signal_name
from fencepost.supervisor.kill import told
from fencepost.supervisor.restart import after_death, look_at_note
from fencepost.supervisor.stacks import crash_text, stack_text
from fencepost.supervisor.state import TRIAL, Child, Kill, State

log = structlog.get_logger()


def reap(state: State, *, death_told: bool = False) -> None:
    """Reap all that has died, and see to it that what it has left behind dies too.

    `death_told`: by the kernel. Where it tells, also of one that another has reaped, nobody is asked for at each tick.
    """
    died = False
    while (pid := _a_dead_child()) is not None:
        child = next((child for child in state.children() if child.pid == pid), None)
        if child is None:
            # A stranger: what a job or a probe left, adopted by us. Its own children come to us next.
            died = True
            state.strays.discard(pid)
            _wait_for(pid)
            continue
        died = True
        _end_group(child)
        _bury(state, child, _wait_for(pid))
    for child in state.children():
        if (death_told or child.pidfd is None) and not _is_our_child(child.pid):
            died = True
            _bury(state, child, STATUS_LOST)
    if died or state.strays:
        end_strays(state)


def end_strays(state: State) -> None:
    """Kill what dead workers' jobs have left outside of their groups.

    Living workers keep their own orphans (each is a subreaper), so what comes to us is a dead worker's. If we were born with
    children, a shell's that became us, what those leave comes too: then only what bears a worker's mark is killed.
    """
    ours = {child.pid for child in state.children()} | state.born_with
    found = {pid for pid in own_children() if pid not in ours and (not state.born_with or _bears_our_mark(pid))}
    for pid in found - state.strays:
        log.warning("killed a program that a job had left behind", pid=pid, command=_command(pid))
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    state.strays.clear()
    state.strays.update(found)


def _a_dead_child() -> int | None:
    try:
        # Looked at, not taken: while it is a zombie its number, and its group's, can't be given to another.
        dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return dead.si_pid if dead is not None else None


def _wait_for(pid: int) -> Death:
    try:
        _, status, usage = os.wait4(pid, 0)
    except ChildProcessError:
        return STATUS_LOST
    return death_of(status, usage.ru_maxrss)


def _end_group(child: Child) -> None:
    try:
        # Ours is never meant: a job may have put its process there.
        if os.getpgid(child.pid) == child.pid != os.getpgrp():
            os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _bury(state: State, child: Child, death: Death) -> None:
    # One that died right after it was ready had no tick in between.
    look_at_note(state, child)
    record = child.record()
    kill = child.kill
    if kill is None and child.doomed is not None and (record is None or record.claim == child.doomed.claim):
        kill = child.doomed
    if kill is None and record is not None and ended_itself(death, record, boottime(), state.settings.kill_grace):
        kill = Kill("max_runtime", record.claim, detail="by the kernel's timer: the supervisor was not there to do it")
    if kill is None and death.signal == signal.SIGKILL:
        # Asked for such a death alone: the answer is for one. A kill of ours was for a reason of its own.
        death = replace(death, out_of_memory=cgroup.counted_an_oom_kill())
    dead = DeadWorker(
        name=child.name,
        slot=child.slot,
        pid=child.pid,
        death=death,
        record=record,
        kill=kill,
        stack=crash_text(child.stacks) if kill is None else kill.stack or stack_text(child.stacks),
    )
    _log(child, dead)
    after_death(state, child, dead)


def _log(child: Child, dead: DeadWorker) -> None:
    if child.slot == TRIAL and dead.death.exit_code == 0:
        log.debug("the trial of the handlers has ended", pid=dead.pid)
        return
    say = log.info if dead.left_as_it_should else log.warning
    say(
        "a worker has left" if dead.left_as_it_should else "a worker has died",
        slot=dead.slot,
        worker=dead.name,
        pid=dead.pid,
        death=str(dead.death),
        exit_code=dead.death.exit_code,
        signal=signal_name(dead.death.signal) if dead.death.signal is not None else None,
        killed_by_us=dead.kill.reason if dead.kill is not None else None,
        max_rss=dead.death.max_rss,
        ready=child.ready,
        **told(child),
    )


def _is_our_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def own_children() -> list[int]:
    """Return the pids of this process' children."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _bears_our_mark(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if b"FENCEPOST_WORKER=" in file.read():
                return True
    except OSError:
        return False
    # A copy without exec has the environment that we began with; the title is the worker's.
    return _command(pid).startswith("fencepost: worker")


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(200).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
