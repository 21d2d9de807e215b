"""What the supervisor takes of a core while its four workers run jobs that do nothing, as quickly as they can."""

from __future__ import annotations

import time

import psutil

from speed.lab import Facts, Lab
from speed.page import spread, table
from speed.parts.throughput import rate

AT_A_TIME = 4


def measure(lab: Lab) -> Facts:
    """Compare its processor time with the clock, again and again."""
    peer = lab.peer("fencepost")
    found: Facts = {"share": [], "rate": []}
    for _ in range(lab.rounds):
        with lab.place(peer, lab.jobs) as place, place.working(AT_A_TIME) as main:
            # Its own start and imports are none of what a job costs.
            place.wait(lambda: place.ask(place.peer.left) < lab.jobs, "a first job")
            supervisor = psutil.Process(main.pid)
            began, used = time.monotonic(), supervisor.cpu_times()
            found["rate"].append(rate(place, lab.jobs))
            now = supervisor.cpu_times()
            found["share"].append(100 * (now.user + now.system - used.user - used.system) / (time.monotonic() - began))
    return found


def tell(facts: Facts) -> str:
    """Tell of it."""
    return table(["jobs a second", "% of a core"], [[spread(facts["rate"]), spread(facts["share"])]])
