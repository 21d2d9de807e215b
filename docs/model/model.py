"""The lease protocol, small enough to try every order of events: two supervisors with a worker each, one job, one row.

What is on the wire, what takes effect on the server, and what is read are three events, and any other may come between them.
`steps` yields whatever may happen next; `explore` follows all of it, and tells what went wrong with the shortest way there.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

QUEUED, RUNNING, DONE, DEAD, CANCELLED = "queued", "running", "done", "dead", "cancelled"
AT_REST = (DONE, DEAD, CANCELLED)

OVERLAP = "OVERLAP"
"""Code of two runs acts at one time."""
LATE = "LATE"
"""A transaction commits although its claim is not the job's any more."""
COUNT = "COUNT"
"""More runs were started than `max_attempts`, those not counted that were given back."""
ENDLESS = "ENDLESS"
"""The job was claimed more often than attempts and interruptions allow together."""
ORPHAN = "ORPHAN"
"""A claim is carried out that nobody will ask for: until its lease is over the job runs for no one."""
REVIVED = "REVIVED"
"""A job that was to be cancelled is in the queue again."""
UNDONE = "UNDONE"
"""A job that was done is not any more."""
STUCK = "STUCK"
"""From here no way without a further fault brings the job to rest."""

NOBODY = -1
Step = tuple[str, "State"]


class Phase(IntEnum):
    """What a worker does, as its board says; `buried` are those of a supervisor that is gone."""

    idle = auto()
    claiming = auto()
    claimed = auto()
    running = auto()
    finishing = auto()
    asking = auto()
    dead = auto()
    buried = auto()


BUSY = (Phase.running, Phase.finishing)
LIVING = (Phase.idle, Phase.claiming, Phase.claimed, Phase.running, Phase.finishing, Phase.asking)


class Held(NamedTuple):
    """A claim, by the number that grows and the name that never repeats."""

    fence: int
    name: int


NOTHING = Held(0, 0)


class Message(NamedTuple):
    """A statement on the wire, or its answer. `age` is how long ago it was sent, for a heartbeat."""

    verb: str
    held: Held
    worker: int
    answered: bool = False
    answer: str = ""
    claimed: Held = NOTHING
    age: int = 0


class Seen(NamedTuple):
    """An expired lease as a sweeper saw it, and for how many ticks it has."""

    name: int
    ticks: int


class Row(NamedTuple):
    """The job's row. `lease` is what is left of it; `lock` is the host whose open transaction holds the row."""

    status: str = QUEUED
    attempts: int = 0
    interruptions: int = 0
    held: Held = NOTHING
    host: int = NOBODY
    worker: int = 0
    lease: int = 0
    cancel: bool = False
    lock: int = NOBODY


class Host(NamedTuple):
    """A supervisor and its worker. `age` counts from when the claim, or the last answered heartbeat, was sent.

    `late` is what the worker sent before it died or lost its connection, and what may still be carried out.
    """

    phase: Phase = Phase.idle
    worker: int = 0
    held: Held = NOTHING
    age: int = 0
    sent: Message | None = None
    late: Message | None = None
    beat: Message | None = None
    why: str = ""
    draining: bool = False
    supervisor_frozen: bool = False
    worker_frozen: bool = False
    seen: Seen | None = None


class State(NamedTuple):
    """All there is. `before` is the row as it was before its last change; `starts` leaves out what was given back."""

    row: Row
    before: Row | None
    hosts: tuple[Host, Host]
    faults: int
    cancels: int
    slow: int
    starts: int = 0
    names: int = 1
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which rules hold, how long things take in ticks, and which accidents may happen, how many of them."""

    lease: int = 3
    holds_for: int = 1
    kill_takes: int = 1
    max_attempts: int = 2
    interruptions: int = 1

    matches: str = "name"  # rule 2; or "running" (fence and status), or "fence" alone
    commit: str = "together"  # rule 3; or "unlocked" or "apart": fence and COMMIT in two messages, the first with a lock or not
    counts_from: str = "sent"  # rules 7 and 10; or "answered"
    late_claim_is_given_back: bool = True  # rule 7
    asks_after_a_lost_answer: bool = True  # rule 8
    finish_and_claim: bool = False  # rule 9; in runs of its own
    beats_by: str = "board"  # rule 11; or "name": all that the worker's name holds
    timer: bool = True  # rule 13
    patience: int = 0  # rule 14: how many ticks an expired lease is looked at before it is swept; 0 where no clock steps
    looks_at_the_claim: bool = True  # rule 14
    sessions_end_first: bool = True  # rule 16
    killed_first: bool = True  # rule 17
    limits_interruptions: bool = True  # rule 17
    reads_cancel: tuple[str, ...] = ("failed", "crashed", "lost", "interrupted", "cancelled")  # rule 18
    cancel_spares_the_done: bool = True  # rule 18

    accidents: tuple[str, ...] = ()  # crash, loss, freeze, stall, failover, jump
    faults: int = 0
    cancels: int = 0
    slow: int = 0
    drains: bool = False
    jobs_fail: bool = False
    hosts: int = 2
    alike: bool = True  # no: where the hosts differ, as the one that drains does
    one_sweeps: bool = False
    beats_arrive: bool = False
    thaws: bool = True
    ignores: tuple[str, ...] = ()


# ---- the table: what its statements do


def holds(rules: Rules, row: Row, held: Held) -> bool:
    """Whether the row is still that of the run which says so."""
    match rules.matches:
        case "fence":
            return row.held.fence == held.fence
        case "running":
            return row.held.fence == held.fence and row.status == RUNNING
        case _:
            return row.held == held and row.status == RUNNING


def ended(rules: Rules, row: Row, outcome: str) -> tuple[Row, bool]:
    """Take the row out of running; tell whether the attempt was given back."""
    given_back = outcome == "interrupted" and (not rules.limits_interruptions or row.interruptions < rules.interruptions)
    attempts = row.attempts - given_back
    if outcome == DONE:
        status = DONE
    elif row.cancel and outcome in rules.reads_cancel:
        status = CANCELLED
    else:
        status = QUEUED if attempts < rules.max_attempts else DEAD
    interruptions = row.interruptions + (outcome == "interrupted" and rules.limits_interruptions)
    # The fence stays, and so does the name where a rule is off that would have it forgotten: nothing reads it at rest.
    return row._replace(
        status=status, attempts=attempts, interruptions=interruptions, host=NOBODY, worker=0, lease=0, lock=NOBODY
    ), given_back


def wrong_after(row: Row) -> str:
    """Tell what must not be, of a row that has just left running."""
    return REVIVED if row.cancel and row.status == QUEUED else ""


# ---- changes of the state


def put(state: State, number: int, host: Host) -> State:
    """Return the state with another host in its place."""
    one, other = state.hosts
    return state._replace(hosts=(host, other) if number == 0 else (one, host))


def write(rules: Rules, state: State, row: Row) -> State:
    """Return the state with another row."""
    if row == state.row:
        return state
    return state._replace(row=row, before=state.row if "failover" in rules.accidents else None)


def say(rules: Rules, state: State, wrong: str) -> State:
    """Return the state with what is wrong with it, if nothing was before."""
    return state._replace(wrong=state.wrong or ("" if wrong in rules.ignores else wrong))


def leave_running(rules: Rules, state: State, outcome: str, *, started: bool) -> State:
    """Write the end of a run."""
    row, given_back = ended(rules, state.row, outcome)
    state = say(rules, write(rules, state, row), wrong_after(row))
    return state._replace(starts=state.starts - (given_back and started))


def acts(host: Host) -> bool:
    """Whether code of a job runs there at this moment."""
    return host.phase is Phase.running and not host.worker_frozen


def free(host: Host, phase: Phase) -> Host:
    """Return the host with a worker that holds nothing."""
    return host._replace(phase=phase, held=NOTHING, age=0, sent=None)


def died(state: State, number: int, why: str, phase: Phase = Phase.dead) -> State:
    """End a worker. What it had sent may still be carried out; what it had locked is let go, unless a COMMIT is on its way."""
    host = state.hosts[number]
    on_the_wire = host.sent if host.sent is not None and not host.sent.answered else None
    host = host._replace(phase=phase, sent=None, late=on_the_wire or host.late, why=why, worker_frozen=False)
    if state.row.lock == number and (host.late is None or host.late.verb != "commit"):
        state = state._replace(row=state.row._replace(lock=NOBODY))
    return put(state, number, host)


# ---- a worker


def worker_steps(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield what a worker may do, that is neither frozen nor dead."""
    host = state.hosts[number]
    if host.phase not in LIVING or host.worker_frozen:
        return
    match host.phase:
        case Phase.idle if host.draining:
            yield "the idle worker leaves", put(state, number, free(host, Phase.buried))
        case Phase.idle if state.row.status == QUEUED:
            sent = Message("claim", NOTHING, host.worker)
            yield "the worker sends a claim", put(state, number, host._replace(phase=Phase.claiming, age=0, sent=sent))
        case Phase.claiming | Phase.finishing if host.sent is not None and host.sent.answered:
            yield from answer_steps(rules, state, number, host, host.sent)
        case Phase.claimed:
            yield from start_steps(rules, state, number)
        case Phase.running:
            yield from end_steps(rules, state, number)
        case Phase.asking:
            yield from ask_steps(rules, state, number)
        case _:
            pass


def answer_steps(rules: Rules, state: State, number: int, host: Host, sent: Message) -> Iterator[Step]:
    """Yield how a worker reads the answer to a claim or a finish."""
    if sent.answer == "held":
        commit = Message("commit", host.held, host.worker)
        yield "the fence was good: the worker sends COMMIT", put(state, number, host._replace(sent=commit))
    else:
        age = host.age if rules.counts_from == "sent" else 0
        claimed = host._replace(phase=Phase.claimed, held=sent.claimed, age=age, sent=None)
        yield f"the worker reads that it has claim {sent.claimed.name}", put(state, number, claimed)


def start_steps(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield the start of what was claimed; or its way back, where it came too late."""
    host = state.hosts[number]
    if not host.draining and not (rules.late_claim_is_given_back and host.age >= rules.holds_for):
        started = put(state, number, host._replace(phase=Phase.running))._replace(starts=state.starts + 1)
        wrong = COUNT if started.starts > rules.max_attempts else OVERLAP if acts(state.hosts[1 - number]) else ""
        yield f"THE RUN STARTS, claim {host.held.name}", say(rules, started, wrong)
    elif state.row.lock == NOBODY:
        if holds(rules, state.row, host.held):
            state = leave_running(rules, state, "interrupted", started=False)
        yield "the worker gives back what it did not start", put(state, number, free(host, Phase.idle))


def end_steps(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield how a handler returns, or fails."""
    host = state.hosts[number]
    finishing = host._replace(phase=Phase.finishing)
    claims_too = rules.finish_and_claim and not host.draining
    # The next claim's deadline counts from here; of this run no code acts any more.
    age = 0 if claims_too else host.age
    verb = "commit" if rules.commit == "together" else "check"
    sent = Message(verb, host.held, host.worker)
    yield "the handler returns: the worker sends its end", put(state, number, finishing._replace(sent=sent))
    if rules.jobs_fail:
        sent = Message("finish and claim" if claims_too else "finish", host.held, host.worker)
        yield f"the handler fails: the worker sends {sent.verb}", put(state, number, finishing._replace(sent=sent, age=age))


def ask_steps(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield what a worker finds that has lost an answer: it asks once what it sent can't be carried out any more."""
    host, row = state.hosts[number], state.row
    if not rules.asks_after_a_lost_answer:
        yield "the worker forgets what it sent", put(state, number, free(host, Phase.idle))
    elif host.late is not None:
        return
    elif row.status != RUNNING or (row.host, row.worker) != (number, host.worker):
        yield "the worker asks, and holds nothing", put(state, number, free(host, Phase.idle))
    elif row.held == host.held:
        sent = Message("finish" if rules.jobs_fail else "commit", host.held, host.worker)
        yield "the worker asks, and sends its end again", put(state, number, host._replace(phase=Phase.finishing, sent=sent))
    else:
        adopted = host._replace(phase=Phase.claimed, held=row.held)
        yield f"the worker asks, and adopts claim {row.held.name}", put(state, number, adopted)


# ---- the server


def server_steps(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield what is carried out of that which is on the wire, or what vanishes."""
    host = state.hosts[number]
    if host.sent is not None and not host.sent.answered:
        sent = host.sent
        for label, after, answer in carried_out(rules, state, number, sent):
            # That there is nothing is read at once: a worker that reads it later might as well be slow in asking again.
            nothing = answer.claimed == NOTHING and answer.answer != "held"
            yield label, put(after, number, free(host, Phase.idle) if nothing else host._replace(sent=answer))
    if host.late is not None:
        for label, after, answer in carried_out(rules, state, number, host.late):
            found = put(after, number, host._replace(late=None))
            nobody_asks = host.worker != host.late.worker or host.phase not in (Phase.asking, Phase.dead, Phase.buried)
            orphan = answer.claimed != NOTHING and nobody_asks
            yield f"of a session that is gone: {label}", say(rules, found, ORPHAN if orphan else "")
        row = state.row._replace(lock=NOBODY) if state.row.lock == number and host.sent is None else state.row
        yield "a statement of a session that is gone vanishes", put(state._replace(row=row), number, host._replace(late=None))
    if host.beat is not None and not host.beat.answered:
        yield renewed(rules, state, number, host.beat)


def carried_out(rules: Rules, state: State, number: int, sent: Message) -> Iterator[tuple[str, State, Message]]:
    """Yield what a worker's statement does, if it has not to wait, and the answer that goes back."""
    row = state.row
    answered = sent._replace(answered=True)
    if sent.verb == "claim":
        after, claimed = claim(rules, state, number, sent.worker)
        yield f"the server carries out a claim: {claimed.name or 'nothing'}", after, answered._replace(claimed=claimed)
    elif sent.verb == "beat":
        _, after = renewed(rules, state, number, sent)
        yield "the server carries out a heartbeat", state._replace(row=after.row, before=after.before), answered
    elif row.lock not in (NOBODY, number) or (row.lock == number and sent.verb != "commit"):
        return
    elif sent.verb == "check":
        good = holds(rules, row, sent.held)
        if good and rules.commit == "apart":
            state = state._replace(row=row._replace(lock=number))
        yield f"the server looks at the fence: {good}", state, answered._replace(answer="held" if good else "void")
    elif sent.verb == "commit":
        if rules.commit != "together" or holds(rules, row, sent.held):
            wrong = LATE if row.status != RUNNING or row.held != sent.held else ""
            state = say(rules, leave_running(rules, state, DONE, started=True), wrong)
        yield f"the server carries out COMMIT, claim {sent.held.name}", state, answered
    else:
        if holds(rules, row, sent.held):
            state = leave_running(rules, state, "failed", started=True)
        claimed = NOTHING
        if sent.verb == "finish and claim":
            # Also where the finish was void: the row may be queued again, and is taken like any other.
            state, claimed = claim(rules, state, number, sent.worker)
        yield f"the server carries out {sent.verb}, claim {sent.held.name}", state, answered._replace(claimed=claimed)


def claim(rules: Rules, state: State, number: int, worker: int) -> tuple[State, Held]:
    """Take the job if it is queued: counted, fenced, named and leased."""
    row = state.row
    if row.status != QUEUED or row.lock != NOBODY:
        return state, NOTHING
    held = Held(row.held.fence + 1, state.names)
    row = row._replace(status=RUNNING, attempts=row.attempts + 1, held=held, host=number, worker=worker, lease=rules.lease)
    state = write(rules, state, row)._replace(names=state.names + 1)
    return say(rules, state, ENDLESS if held.fence > rules.max_attempts + rules.interruptions else ""), held


def renewed(rules: Rules, state: State, number: int, beat: Message) -> Step:
    """Carry out a heartbeat: renewed, locked or lost; with renewed comes whether the job is to be cancelled."""
    row = state.row
    if rules.beats_by == "board":
        mine = holds(rules, row, beat.held)
    else:
        mine = row.status == RUNNING and (row.host, row.worker) == (number, beat.worker)
    if not mine:
        answer = "lost"
    elif row.lock != NOBODY:
        answer = "locked"
    else:
        answer = "cancel" if row.cancel else "renewed"
        state = write(rules, state, row._replace(lease=rules.lease))
    host = state.hosts[number]
    read = None if answer == "locked" else beat._replace(answered=True, answer=answer)
    return f"the server carries out a heartbeat: {answer}", put(state, number, host._replace(beat=read))


# ---- a supervisor


def supervisor_steps(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield what a supervisor may do that is not frozen: beat, stop runs, book, sweep."""
    host = state.hosts[number]
    if host.supervisor_frozen or host.phase is Phase.buried:
        return
    yield from beat_steps(rules, state, number)
    yield from kill_steps(rules, state, number)
    if host.phase is Phase.dead and state.row.lock == NOBODY and (host.late is None or not rules.sessions_end_first):
        yield book(rules, state, number)
    if state.row.status == RUNNING and state.row.lease == 0 and state.row.lock == NOBODY:
        yield from sweep_steps(rules, state, number)


def beat_steps(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield how a heartbeat is sent, and its answer read."""
    host, row = state.hosts[number], state.row
    if host.beat is None:
        by_name = row.status == RUNNING and (row.host, row.worker) == (number, host.worker) and host.phase in LIVING
        if (host.phase in BUSY and host.age > 0) if rules.beats_by == "board" else by_name:
            yield "a heartbeat is sent", put(state, number, host._replace(beat=Message("beat", host.held, host.worker)))
    elif host.beat.answered:
        beat, host = host.beat, host._replace(beat=None)
        same = host.held == beat.held and host.held != NOTHING
        if same and host.phase in BUSY and beat.answer in ("renewed", "cancel"):
            host = host._replace(age=beat.age if rules.counts_from == "sent" else 0)
            if beat.answer == "cancel" and host.phase is Phase.running:
                yield "the run is to be cancelled, and is killed", died(put(state, number, host), number, "cancelled")
            else:
                yield "the lease is renewed", put(state, number, host)
        elif same and host.phase is Phase.running and beat.answer == "lost":
            yield "the lease is lost: the run is killed", died(put(state, number, host), number, "lost")
        else:
            yield "the heartbeat's answer changes nothing", put(state, number, host)


def kill_steps(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield why a run may be killed: its lease can't be kept, or the drain has taken too long."""
    host = state.hosts[number]
    if at_its_deadline(rules, host):
        yield "the lease can't be kept: the run is killed", died(state, number, "lost")
    if host.draining and host.phase is Phase.running:
        if rules.killed_first:
            yield "the drain has taken too long: the run is killed", died(state, number, "interrupted")
        elif host.why == "given back":
            yield "... and then the run is killed", died(state, number, "lost")
        elif state.row.lock == NOBODY and holds(rules, state.row, host.held):
            given_back = leave_running(rules, state, "interrupted", started=True)
            yield (
                "the drain has taken too long: the job is given back",
                put(given_back, number, host._replace(why="given back")),
            )


def at_its_deadline(rules: Rules, host: Host, more: int = 0) -> bool:
    """Whether a run has to be killed, or had to be `more` ticks ago."""
    acting = host.phase is Phase.running or (host.phase is Phase.finishing and host.sent is not None and not host.sent.answered)
    return acting and host.age >= rules.holds_for + more


def book(rules: Rules, state: State, number: int) -> Step:
    """Write down what a dead worker held, asked of the table by its name, and fill the slot."""
    host, row = state.hosts[number], state.row
    after = state
    if row.status == RUNNING and (row.host, row.worker) == (number, host.worker):
        after = leave_running(rules, state, host.why, started=row.held == host.held)
    refilled = free(host, Phase.buried if host.draining else Phase.idle)._replace(why="", beat=None)
    if host.late is not None:
        # Only now is there anything that could tell the next worker from the dead one.
        refilled = refilled._replace(worker=host.worker + 1)
    return f"the supervisor books a dead worker: {host.why}", put(after, number, refilled)


def sweep_steps(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield a look at a lease that has run out; and its end, for one that was looked at for long enough."""
    host = state.hosts[number]
    if rules.one_sweeps and number == 0:
        return
    known = host.seen is not None and (not rules.looks_at_the_claim or host.seen.name == state.row.held.name)
    if rules.patience == 0 or (known and host.seen is not None and host.seen.ticks > rules.patience):
        yield "the job is swept", put(leave_running(rules, state, "lost", started=True), number, host._replace(seen=None))
    elif not known:
        yield "a lease is seen that has run out", put(state, number, host._replace(seen=Seen(state.row.held.name, 0)))


# ---- accidents, and what comes from outside


def accidents(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield what may go wrong with a host, while there are faults left."""
    host = state.hosts[number]
    after = state._replace(faults=state.faults - 1)
    if "crash" in rules.accidents and host.phase in LIVING:
        yield "FAULT: the worker dies", died(after, number, "crashed")
    if "loss" in rules.accidents:
        if host.sent is not None and host.late is None and host.phase in LIVING:
            lost = put(died(after, number, ""), number, died(after, number, "").hosts[number]._replace(phase=Phase.asking))
            yield "FAULT: the worker loses its connection", lost
        if host.beat is not None and host.late is None:
            late = None if host.beat.answered else host.beat
            yield "FAULT: a heartbeat is lost or late", put(after, number, host._replace(beat=None, late=late))
    if host.supervisor_frozen or host.phase is Phase.buried:
        return
    if "freeze" in rules.accidents:
        yield "FAULT: the host freezes", put(after, number, host._replace(supervisor_frozen=True, worker_frozen=True))
    if "stall" in rules.accidents:
        yield "FAULT: the supervisor stalls", put(after, number, host._replace(supervisor_frozen=True))


def thaws(rules: Rules, state: State, number: int) -> Iterator[Step]:
    """Yield how what was frozen goes on, each process when it may; and the end of a supervisor by its timer."""
    host = state.hosts[number]
    if rules.timer and host.supervisor_frozen and not host.worker_frozen and at_its_deadline(rules, host):
        ended_by_timer = put(state, number, host._replace(supervisor_frozen=False, beat=None))
        yield "the timer ends the supervisor, and its worker", died(ended_by_timer, number, "", Phase.buried)
    if host.worker_frozen and rules.thaws:
        wrong = OVERLAP if host.phase is Phase.running and acts(state.hosts[1 - number]) else ""
        yield "the worker thaws", say(rules, put(state, number, host._replace(worker_frozen=False)), wrong)
    if host.supervisor_frozen and rules.thaws:
        yield "the supervisor thaws", put(state, number, host._replace(supervisor_frozen=False))


def failover(state: State) -> Step:
    """Lose the last commit, and all connections."""

    def cut(host: Host) -> Host:
        phase = Phase.asking if host.phase in (Phase.claiming, Phase.finishing) else host.phase
        return host._replace(phase=phase, sent=None, late=None, beat=None)

    row = (state.before or state.row)._replace(lock=NOBODY)
    one, other = state.hosts
    return "FAULT: a failover loses the last commit", state._replace(
        row=row, before=None, hosts=(cut(one), cut(other)), faults=state.faults - 1
    )


def cancel(rules: Rules, state: State) -> Step:
    """Cancel by hand: at once if queued, asked for if running, refused at rest."""
    row = state.row
    after = state._replace(cancels=state.cancels - 1)
    if row.status == QUEUED:
        return "OUTSIDE: a queued job is cancelled", write(rules, after, row._replace(status=CANCELLED, cancel=True))
    if row.status == RUNNING:
        return "OUTSIDE: a cancel is asked for", write(rules, after, row._replace(cancel=True))
    if row.status == DONE and not rules.cancel_spares_the_done:
        return "OUTSIDE: a job that is done is cancelled", say(rules, after, UNDONE)
    return "OUTSIDE: a cancel is refused", after


# ---- time


def tick_steps(rules: Rules, state: State) -> Iterator[Step]:
    """Yield that time passes, unless something is due that the rules promise in time."""
    row = state.row
    if row.status in AT_REST or any(overdue(rules, host) for host in state.hosts):
        return
    if (
        rules.beats_arrive
        and row.status == RUNNING
        and row.lease <= 1
        and any(prolongs(rules, row, number, host) for number, host in enumerate(state.hosts))
    ):
        return
    after = state._replace(row=row._replace(lease=max(0, row.lease - 1)))
    one, other = (older(rules, host, row) for host in state.hosts)
    if (ticked := after._replace(hosts=(one, other))) != state:
        yield "a tick", ticked
    if state.slow:
        after = after._replace(slow=state.slow - 1)
        yield "a tick that the clock of host 0 misses", after._replace(hosts=(state.hosts[0], other))
        yield "a tick that the clock of host 1 misses", after._replace(hosts=(one, state.hosts[1]))


def overdue(rules: Rules, host: Host) -> bool:
    """Whether a run is to be dead by now: a supervisor that is awake has killed it, and else its timer has."""
    awake = not host.supervisor_frozen or (rules.timer and not host.worker_frozen)
    return awake and at_its_deadline(rules, host, rules.kill_takes)


def prolongs(rules: Rules, row: Row, number: int, host: Host) -> bool:
    """Whether this host's heartbeats keep the lease."""
    if host.supervisor_frozen or host.phase not in LIVING:
        return False
    if rules.beats_by == "board":
        return host.phase in BUSY and holds(rules, row, host.held)
    return (row.host, row.worker) == (number, host.worker)


def older(rules: Rules, host: Host, row: Row) -> Host:
    """Return the host a tick later. Its own numbers stop where more would make no difference."""
    most = rules.holds_for + rules.kill_takes
    if host.phase in (Phase.claiming, Phase.claimed, Phase.running, Phase.finishing, Phase.asking):
        host = host._replace(age=min(most, host.age + 1))
    if host.beat is not None:
        host = host._replace(beat=host.beat._replace(age=min(most, host.beat.age + 1)))
    if host.seen is not None:
        expired = row.status == RUNNING and row.lease == 0
        seen = host.seen._replace(ticks=min(rules.patience + 1, host.seen.ticks + 1)) if expired else None
        host = host._replace(seen=seen)
    return host


# ---- all of it


def first(rules: Rules) -> State:
    """Return the state in which all begins."""
    other = Host() if rules.hosts == 2 else Host(phase=Phase.buried)
    return State(Row(), None, (Host(), other), rules.faults, rules.cancels, rules.slow)


def over(state: State) -> bool:
    """Whether nothing of interest can happen any more."""
    if state.row.status not in AT_REST:
        return False
    messages = [message for host in state.hosts for message in (host.sent, host.late) if message is not None]
    return not state.cancels and not any(message.verb in ("commit", "check") for message in messages)


def steps(rules: Rules, state: State) -> Iterator[Step]:
    """Yield whatever may happen next."""
    if state.wrong or over(state):
        return
    for number in range(rules.hosts):
        host = state.hosts[number]
        steps_of_host = (worker_steps, server_steps, supervisor_steps, thaws)
        for some in steps_of_host:
            for label, after in some(rules, state, number):
                yield f"host {number}: {label}", after
        if rules.drains and number == 0 and not host.draining and host.phase is not Phase.buried:
            yield f"host {number}: OUTSIDE: told to drain", put(state, number, host._replace(draining=True))
        if state.faults:
            for label, after in accidents(rules, state, number):
                yield f"host {number}: {label}", after
    if state.faults and "failover" in rules.accidents and state.before is not None:
        yield failover(state)
    if state.faults and "jump" in rules.accidents and state.row.status == RUNNING and state.row.lease:
        yield (
            "FAULT: the server's clock steps forward",
            state._replace(row=state.row._replace(lease=0), faults=state.faults - 1),
        )
    if state.cancels:
        yield cancel(rules, state)
    yield from tick_steps(rules, state)


@dataclass(frozen=True, slots=True)
class Found:
    """How many states there are, and the shortest way to each thing that is wrong."""

    states: int
    traces: dict[str, list[str]]


def turned(state: State) -> State:
    """Return the state with its hosts' places exchanged."""

    def other(number: int) -> int:
        return number if number == NOBODY else 1 - number

    def turn(row: Row) -> Row:
        return row._replace(host=other(row.host), lock=other(row.lock))

    before = None if state.before is None else turn(state.before)
    return state._replace(row=turn(state.row), before=before, hosts=(state.hosts[1], state.hosts[0]))


def explore(rules: Rules, until: str = "", limit: int = 400_000) -> Found:
    """Follow all that may happen, breadth first: the first way found to a state is a shortest one. `until` is found.

    The hosts are alike, so two states that differ only in which of them is which are one.
    """
    gc.disable()  # Nothing here is cyclic, and there is much of it.
    start = first(rules)
    numbers = {start: 0}
    order = [start]
    reached_by: list[tuple[int, str, bool]] = [(0, "", False)]
    leads_here: list[list[int]] = [[]]
    waiting = deque([0])
    wrong: dict[str, int] = {}
    while waiting:
        here = waiting.popleft()
        for label, after in steps(rules, order[here]):
            is_turned = rules.alike and hash(after.hosts[0]) > hash(after.hosts[1])
            found = turned(after) if is_turned else after
            there = numbers.setdefault(found, len(order))
            if there == len(order):
                order.append(found)
                reached_by.append((here, label, is_turned))
                leads_here.append([])
                waiting.append(there)
                if after.wrong:
                    wrong.setdefault(after.wrong, there)
                    if after.wrong == until:
                        return Found(len(order), {until: trace(reached_by, there)})
                if there > limit:
                    raise MemoryError(f"more than {limit} states: give it fewer faults, or a shorter lease")
            if "FAULT" not in label and "OUTSIDE" not in label:
                leads_here[there].append(here)
    if (stuck := first_stuck(order, leads_here)) is not None:
        wrong[STUCK] = stuck
    return Found(len(order), {name: trace(reached_by, number) for name, number in wrong.items()})


def first_stuck(order: list[State], leads_here: list[list[int]]) -> int | None:
    """Return the first state from which the job can't come to rest, though a supervisor is there to see to it."""
    ends = [number for number, state in enumerate(order) if state.wrong or state.row.status in AT_REST]
    good = set(ends)
    while ends:
        for number in leads_here[ends.pop()]:
            if number not in good:
                good.add(number)
                ends.append(number)

    def attended(state: State) -> bool:
        return any(host.phase is not Phase.buried and not host.supervisor_frozen for host in state.hosts)

    return next((number for number, state in enumerate(order) if number not in good and attended(state)), None)


def trace(reached_by: list[tuple[int, str, bool]], number: int) -> list[str]:
    """Return the events that lead from the beginning to a state, each host with one number all the way."""
    events = []
    while number:
        number, label, is_turned = reached_by[number]
        events.append((label, is_turned))
    turns = False
    told = []
    for label, is_turned in reversed(events):
        told.append(f"host {1 - int(label[5])}{label[6:]}" if turns and label.startswith("host ") else label)
        turns ^= is_turned
    return told
