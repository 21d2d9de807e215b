"""`make bench`: measure, part by part, and write the page.

ONLY=throughput,idle takes some parts, PEERS=fencepost,pgbench,oban some peers, ROUNDS=3 says how often all is repeated,
JOBS=20000 how many jobs bare SQL is given; ONLY=report writes the page anew and measures nothing. With PEERS or JOBS it is a
try, and what it finds goes into `.make/bench`. Else it goes into results.json, which keeps what this run leaves out, and the
page is made of it.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

from peers.peer import ROOT, Trouble

from speed.lab import SERVER, Lab
from speed.page import HERE, PARTS, RESULTS, keep, part, read, write
from speed.peer import Peer, all_peers
from support import nursery
from support.servers import Installation, Server, new_data, temporary_folder

REPORT_ALONE = "report"


def main() -> int:
    """Measure, and write down after each part."""
    words = {name: [word for word in os.environ.get(name, "").split(",") if word] for name in ("ONLY", "PEERS")}
    if unknown := set(words["ONLY"]) - {*PARTS, REPORT_ALONE}:
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}, and {REPORT_ALONE}", file=sys.stderr)
        return 2
    jobs = int(os.environ.get("JOBS") or 0)
    rounds = int(os.environ.get("ROUNDS") or 3)
    is_a_try = bool(words["PEERS"] or jobs)
    results = ROOT / ".make" / "bench" / RESULTS.name if is_a_try else RESULTS
    results.parent.mkdir(parents=True, exist_ok=True)
    for name in [name for name in os.environ if name.startswith(("FENCEPOST_", "PG")) or name == "DATABASE_URL"]:
        del os.environ[name]
    # Ended by TERM, too, it leaves nothing behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed = []
    if words["ONLY"] != [REPORT_ALONE]:
        peers = [peer for peer in all_peers() if not words["PEERS"] or _wanted(peer, words["PEERS"])]
        failed = run(words["ONLY"] or list(PARTS), peers, jobs or 20_000, rounds, results)
    write(read(results), results.parent if is_a_try else HERE)
    print(f"written: {results}", flush=True)
    return 1 if failed else 0


def _wanted(peer: Peer, words: list[str]) -> bool:
    return any(peer.slug == word or (word == "pgbench" and peer.slug.startswith("pgbench")) for word in words)


def missing(peers: list[Peer]) -> dict[str, str]:
    """Install what is not there, before anything is measured; return which could not be, and why."""
    found = {}
    for peer in peers:
        try:
            peer.install()
        except Trouble as trouble:
            print(f"{peer.name} can't be installed: {trouble}", flush=True)
            found[peer.slug] = str(trouble)
    return found


def run(wanted: list[str], peers: list[Peer], jobs: int, rounds: int, results: Path) -> list[str]:
    """Measure parts on a server of their own, and return those that have failed."""
    # The data are to be on a disk: what is promised is durable.
    os.environ.setdefault("TMPDIR", "/var/tmp")
    folder = temporary_folder(None)
    folder.chmod(0o755)
    try:
        installation = Installation.chosen(folder)
        server = Server.new(installation, new_data(installation, folder), **SERVER)
        try:
            server.start()
            lacking = missing(peers)
            lab = Lab(server, [peer for peer in peers if peer.slug not in lacking], lacking, jobs, rounds)
            return [name for name in PARTS if name in wanted and not measure(name, lab, results)]
        finally:
            server.remove()
    finally:
        nursery.close()
        shutil.rmtree(folder)


def measure(name: str, lab: Lab, results: Path) -> bool:
    """Measure one part and keep what was found."""
    began = time.monotonic()
    print(f"{name} …", flush=True)
    lab.so_far = lambda facts: keep(results, name, facts, lab)
    try:
        lab.so_far(part(name).measure(lab))
    except Exception:  # noqa: BLE001  # one part's trouble is not another's
        traceback.print_exc()
        return False
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
