"""One experiment on Fencepost and its peers: `make compare`.

ONLY=chancy,oban takes some peers, QUICK=exit,freeze some accidents, AT_ONCE=3 that many peers at a time (2). What is measured
goes into results.json, which keeps what this run leaves out, and the table of README.md is made of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from page import write_table
from peer import HERE, Peer, Place, TooLate, all_peers
from peers.peer import Trouble
from scenarios import SCENARIOS, stopping

from support.servers import Installation, Server, new_data, temporary_folder

RESULTS = HERE / "results.json"
ONLY = [word for word in os.environ.get("ONLY", "").split(",") if word]
QUICK = [word for word in os.environ.get("QUICK", "").split(",") if word]
AT_ONCE = int(os.environ.get("AT_ONCE") or 2)
TRIES = 4

_writing = threading.Lock()


def main() -> int:
    """Measure, and write down after each accident."""
    peers = [peer for peer in all_peers() if not ONLY or peer.slug in ONLY]
    for peer in peers:
        install(peer)
    folder = temporary_folder(None)
    folder.chmod(0o755)
    installation = Installation.chosen(folder)
    server = Server.new(installation, new_data(installation, folder), max_connections="300")
    try:
        server.start()
        signal.signal(signal.SIGINT, lambda *_: stopping.set())
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda peer: measure(peer, server), peers))
    finally:
        server.remove()
        shutil.rmtree(folder)
    write_table(all_peers(), read())
    return 0


def install(peer: Peer) -> None:
    """Have its packages ready before anything is measured. What fails here is told once more, as each accident's trouble."""
    try:
        peer.install()
    except Trouble as trouble:
        print(f"{peer.slug}: {trouble}", flush=True)


def measure(peer: Peer, server: Server) -> None:
    """Have all accidents with one peer, one after the other."""
    for name, scenario in SCENARIOS.items():
        if QUICK and name not in QUICK:
            continue
        if name == "kill-main" and not peer.several:
            continue  # Its main process is the whole of it.
        began = time.monotonic()
        facts = _tried(peer, scenario, server)
        if stopping.is_set():
            return
        if facts["trouble"]:
            print(f"{peer.slug} {name}: {facts['trouble']}", flush=True)
        keep(peer, name, {**facts, "versions": peer.versions})
        print(f"{peer.slug} {name}: {time.monotonic() - began:.0f} s", flush=True)


def _tried(peer: Peer, scenario: Callable[[Place], dict[str, Any]], server: Server) -> dict[str, Any]:
    """Try until the accident has met what it was to meet. The folder of a trial that has failed is kept, to look into."""
    trouble = ""
    for _ in range(TRIES):
        folder = Path(tempfile.mkdtemp(prefix=f"crash-{peer.slug}-"))
        try:
            peer.install()
            facts = scenario(Place.new(peer, server, folder))
        except TooLate as late:
            trouble = str(late)
            continue
        except Trouble as error:
            return {"trouble": f"{error} (see {folder})"}
        except Exception:  # noqa: BLE001  # one peer's trouble is not another's
            traceback.print_exc()
            return {"trouble": f"{traceback.format_exc().splitlines()[-1]} (see {folder})"}
        shutil.rmtree(folder)
        return {**facts, "trouble": ""}
    return {"trouble": trouble}


def read() -> dict[str, dict[str, dict[str, Any]]]:
    """Return what has been measured so far: by peer, by accident."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}


def keep(peer: Peer, name: str, facts: dict[str, Any]) -> None:
    """Write one accident's facts down."""
    with _writing:
        known = read()
        known.setdefault(peer.slug, {})[name] = facts
        RESULTS.write_text(_a_line_an_accident(known), encoding="utf-8")


def _a_line_an_accident(known: dict[str, dict[str, dict[str, Any]]]) -> str:
    peers = []
    for slug, of_peer in sorted(known.items()):
        accidents = [f'  "{name}": {json.dumps(facts, sort_keys=True)}' for name, facts in of_peer.items()]
        peers.append(f' "{slug}": {{\n' + ",\n".join(accidents) + "\n }")
    return "{\n" + ",\n".join(peers) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
