"""Read the jobs' log: which runs there were, and which of them acted at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One run of a job, as its own notes tell. `last` is its last note; one that has hung or died says no more."""

    job: str
    pid: int
    start: float
    notes: tuple[float, ...]
    ended: bool

    @property
    def last(self) -> float:
        """When it last gave a sign of life."""
        return self.notes[-1]


def runs(log: Path) -> list[Run]:
    """Return the runs in the order in which they started."""
    notes: dict[str, list[list[str]]] = {}
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
        words = line.split()
        if len(words) == 5:
            notes.setdefault(words[2], []).append(words)
    found = [
        Run(
            job=of_run[0][3],
            pid=int(of_run[0][1]),
            start=float(of_run[0][0]),
            notes=tuple(float(words[0]) for words in of_run),
            ended=of_run[-1][4] == "end",
        )
        for of_run in notes.values()
    ]
    return sorted(found, key=lambda run: run.start)


def overlap(log: list[Run]) -> float:
    """Return for how many seconds at most two runs of one job have both acted: notes of each, after the other's first."""
    most = 0.0
    for number, one in enumerate(log):
        for other in log[number + 1 :]:
            if one.job == other.job:
                both = [at for at in one.notes if other.start <= at <= other.last]
                most = max(most, both[-1] - other.start if both else 0.0)
    return round(most, 1)
