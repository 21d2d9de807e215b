"""Make the tables of README.md from what was measured."""

from __future__ import annotations

import re
from typing import Any

from peer import HERE, Peer
from scenarios import INNOCENT, LIMIT, POISON

PAGE = HERE / "README.md"
WAYS = {"exit": "exits", "segfault": "segfaults", "hang": "hangs in C"}

Facts = dict[str, Any]


def write_table(peers: list[Peer], results: dict[str, Facts]) -> None:
    """Put the tables between their marks."""
    measured = {peer.slug: results.get(peer.slug, {}) for peer in peers}
    tables = {
        "short": _table(
            [
                "",
                "a poison's runs",
                "innocents beside it",
                "a hang in C",
                "worker killed",
                "main process killed",
                "frozen, woken",
            ],
            [[peer.name, *in_short(measured[peer.slug], peer)] for peer in peers],
        ),
        "poison": _table(
            ["", *[f"{text}: {who}" for text in WAYS.values() for who in ("poison", "innocents")]],
            [[peer.name, *[cell for way in WAYS for cell in _of_poison(measured[peer.slug].get(way))]] for peer in peers],
        ),
        "kills": _table(
            ["", "killed whole", "innocents", "main killed", "innocents", "orphans", "overlap"],
            [
                [peer.name, *_of_kill(measured[peer.slug].get("kill")), *_of_main(measured[peer.slug].get("kill-main"), peer)]
                for peer in peers
            ],
        ),
        "freeze": _table(
            ["", "taken over after", "overlap", "the late writes", "innocents"],
            [[peer.name, *_of_freeze(measured[peer.slug].get("freeze"))] for peer in peers],
        ),
        "settings": _table(
            ["", "versions", "rescue"],
            [[peer.name, peer.versions or "this checkout", peer.rescue] for peer in peers],
        ),
    }
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        page = re.sub(
            rf"(<!-- {name} -->\n).*?(\n<!-- {name} end -->)",
            lambda found, text=table: found[1] + text + found[2],
            page,
            flags=re.DOTALL,
        )
    PAGE.write_text(page, encoding="utf-8")


def in_short(of_peer: Facts, peer: Peer) -> list[str]:
    """Return a peer's line of the first table."""
    crashes = [of_peer.get("exit"), of_peer.get("segfault")]
    if any(_missing(facts) for facts in crashes):
        return [_missing(next(facts for facts in crashes if _missing(facts)))] + ["not measured"] * 5
    poison = _both([_poison(facts) for facts in crashes])
    innocents = _both([_innocents(facts) for facts in crashes])
    hang, kill, freeze = of_peer.get("hang"), of_peer.get("kill"), of_peer.get("freeze")
    return [
        poison,
        innocents,
        _missing(hang) or f"{_poison(hang)}; innocents {_innocents(hang)}",
        _missing(kill) or _again(kill),
        "one process" if not peer.several else _missing(of_peer.get("kill-main")) or _orphans(of_peer["kill-main"]),
        _missing(freeze) or _late(freeze),
    ]


# ---- cells


def _of_poison(facts: Facts | None) -> list[str]:
    return [_missing(facts)] * 2 if _missing(facts) else [_poison(facts), _innocents(facts)]


def _of_kill(facts: Facts | None) -> list[str]:
    return [_missing(facts)] * 2 if _missing(facts) else [_again(facts), _innocents(facts)]


def _of_main(facts: Facts | None, peer: Peer) -> list[str]:
    if not peer.several:
        return ["one process", "", "", ""]
    if _missing(facts):
        return [_missing(facts)] * 4
    return [_again(facts), _innocents(facts), _orphans(facts), _seconds(facts["overlap"])]


def _of_freeze(facts: Facts | None) -> list[str]:
    if _missing(facts):
        return [_missing(facts)] * 4
    again = f"{facts['again']:.0f} s" if facts["again"] is not None else "not in 45 s"
    when = ", once it was woken" if facts["again"] is not None and facts["again"] > facts["woken"] else ""
    return [again + when, _seconds(facts["overlap"]), _late(facts), _innocents(facts)]


def _missing(facts: Facts | None) -> str:
    if facts is None:
        return "not measured"
    return f"not measured: {re.sub(r' .see .*| *[|]', '', facts['trouble'])}" if facts["trouble"] else ""


def _poison(facts: Facts) -> str:
    job = facts["jobs"][POISON]
    count = _times(len(job["runs"]))
    end = _end(job)
    if end in {"dead", "done"}:
        return f"{count}, then ended"
    if facts.get("hangs_on"):
        return f"{count}, hangs on"
    if len(job["runs"]) > 3:
        return f"{count} in {facts['watched']:.0f} s, goes on"
    return f"{count}, then gone" if end == "gone" else f"{count} in {facts['watched']:.0f} s, {end}"


def _innocents(facts: Facts) -> str:
    return _both([_innocent(facts["jobs"][name]) for name in INNOCENT])


def _innocent(job: Facts) -> str:
    """What the log says of a job's runs decides; of its attempts, the table."""
    count = len(job["runs"])
    attempts = f" ({job['attempts']})" if "/" in job["attempts"] and count > 1 else ""
    if any(run["ended"] for run in job["runs"]):
        if job["state"] in {"running", "waiting"}:
            return f"done, but {job['state']} for the table"
        return "untouched" if count == 1 else f"done in {_times(count)}{attempts}"
    return f"dead{attempts}" if _end(job) == "dead" else f"not done ({_times(count)})"


def _again(facts: Facts) -> str:
    if facts["again"] is None and all(any(run["ended"] for run in facts["jobs"][name]["runs"]) for name in INNOCENT):
        return "their runs went on"
    return f"again after {facts['again']:.0f} s" if facts["again"] is not None else f"never in {LIMIT} s"


def _orphans(facts: Facts) -> str:
    if not facts["orphans"]:
        return "no orphans"
    acted = facts["orphans_acted_until"] or 0
    text = f"{facts['orphans']} of {facts['processes'] - 1} go on"
    if acted > 0.5:
        text += f", act until {acted:.0f} s"
    if facts["orphans_took_jobs"]:
        text += ", take more jobs"
    if any(sum(run["ended"] for run in facts["jobs"][name]["runs"]) > 1 for name in INNOCENT):
        text += "; the innocents are done twice"
    return text


def _late(facts: Facts) -> str:
    logged = " and logged" if facts["said"] else ""
    late = [_late_write(facts["jobs"][name]) for name in INNOCENT]
    if any(at < facts["woken"] for at in facts["exits"]):
        late = [what.replace("stopped", "stopped, still frozen") for what in late]
    return _both([what + (logged if what in {"refused", "stopped"} else "") for what in late])


def _late_write(job: Facts) -> str:
    """Say what became of the write of a run that came too late, by what the table said while the next run was at work."""
    if len(job["runs"]) == 1:
        return "no takeover in 45 s"
    late, fresh = job["runs"][:2]
    if not late["ended"]:
        return "stopped"
    until = fresh["last"] - 0.3 if fresh["ended"] else float("inf")
    meanwhile = {state for at, state, _ in job["history"] if late["last"] <= at < until}
    if "done" in meanwhile:
        return "booked over"
    was_seen = any(state == "running" for at, state, _ in job["history"] if at <= late["last"])
    return "deleted" if "gone" in meanwhile and was_seen else "refused"


def _end(job: Facts) -> str:
    """Return the state in the end. A job that was at its end and is out of the table's sight is at its end."""
    ends = [state for _, state, _ in job["history"] if state in {"done", "dead"}]
    return ends[-1] if job["state"] == "gone" and ends else str(job["state"])


def _times(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds else "none"


def _both(texts: list[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
