"""`make article`: measure, part by part, and write the report.

ONLY=tenant,poison takes some parts, SCALE=0.02 a fiftieth of the article's sizes; ONLY=report writes the report anew and
measures nothing. What is measured at full scale goes into results.json, which keeps what this run leaves out, and the report is
made of it. Other scales write theirs into `.make/article`.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import sys
import time
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

from article.lab import HERE, Lab
from article.missing import Missing
from article.report import PARTS, REPORT, RESULTS, part, read, write
from support import nursery
from support.servers import MEMORY, Installation, Server, new_data, temporary_folder

DEFAULTS = {
    "fsync": "on",
    "full_page_writes": "on",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "log_lock_waits": "off",
}
"""PostgreSQL's own, which the tests' servers do without."""

REPORT_ALONE = "report"
LONGEST = "claims"


def main() -> int:
    """Measure, and write down after each part."""
    scale = float(os.environ.get("SCALE") or 1)
    wanted = [word for word in os.environ.get("ONLY", "").split(",") if word] or list(PARTS)
    if unknown := set(wanted) - {*PARTS, REPORT_ALONE}:
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}, and {REPORT_ALONE}", file=sys.stderr)
        return 2
    into = HERE if scale == 1 else HERE.parents[1] / ".make" / "article"
    into.mkdir(parents=True, exist_ok=True)
    for name in [name for name in os.environ if name.startswith(("FENCEPOST_", "PG")) or name == "DATABASE_URL"]:
        del os.environ[name]
    if wanted == [REPORT_ALONE]:
        write(read(into / RESULTS.name), into)
        return 0
    # Ended by TERM, too, it leaves nothing behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failed = run([name for name in PARTS if name in wanted], scale, into)
    write(read(into / RESULTS.name), into)
    print(f"written: {into / REPORT.name}", flush=True)
    return 1 if failed else 0


def run(wanted: list[str], scale: float, into: Path) -> list[str]:
    """Measure parts on a server of their own, the longest one last; return those that have failed."""
    folder = temporary_folder(None)
    folder.chmod(0o755)
    try:
        installation = Installation.chosen(folder)
        data = new_data(installation, folder)
        server = Server.new(installation, data, **DEFAULTS)
        try:
            server.start()
            lab = Lab(server, (installation, data), scale)
            in_turn = sorted(wanted, key=lambda name: name == LONGEST)
            return [name for name in in_turn if not measure(name, lab, into)]
        finally:
            server.remove()
    finally:
        nursery.close()
        shutil.rmtree(folder)


def measure(name: str, lab: Lab, into: Path) -> bool:
    """Measure one part and keep what was found."""
    began = time.monotonic()
    print(f"{name} …", end=" ", flush=True)
    try:
        found: dict[str, Any] = {"facts": part(name).measure(lab)}
    except Missing as missing:
        found = {"missing": str(missing)}
    except Exception:  # noqa: BLE001  # one part's trouble is not another's
        traceback.print_exc()
        return False
    took = time.monotonic() - began
    print(found.get("missing") or f"{took:.0f} s", flush=True)
    results = read(into / RESULTS.name)
    results["about"] = _about(lab)
    results["parts"][name] = {"scale": lab.scale, "seconds": round(took), **found}
    (into / RESULTS.name).write_text(json.dumps(_rounded(results), indent=1) + "\n", encoding="utf-8")
    return True


def _about(lab: Lab) -> dict[str, Any]:
    with lab.database() as database:
        postgresql = database.value("show server_version")
    return {
        "postgresql": postgresql,
        "python": platform.python_version(),
        "psycopg": version("psycopg"),
        "psycopg_pool": version("psycopg_pool"),
        "cores": os.cpu_count(),
        "where": "its data in memory" if str(lab.server.folder).startswith(MEMORY) else "its data on a disk",
    }


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {name: _rounded(one) for name, one in value.items()}
        case list():
            return [_rounded(one) for one in value]
    return value


if __name__ == "__main__":
    sys.exit(main())
