"""A worker of a naive design, as a process, on the database of DATABASE_URL.

Started as `python -m article.designs.worker DESIGN LEASE once|leave|stay`.

It takes one job (`once`), all there are (`leave`), or looks every tenth of a second for more (`stay`).
"""

from __future__ import annotations

import importlib
import os
import sys
import time

import psycopg

from article.designs.work import Lost, act

LOOK = 0.1
"""Seconds between two looks at an empty queue."""


def main(design: str, lease: str, how_long: str) -> None:
    """Take jobs."""
    take = importlib.import_module(f"article.designs.{design}").take
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as conn:
        while True:
            try:
                took = take(conn, lambda taken: act(conn, url, taken), float(lease))
            except Lost as lost:
                print(lost, file=sys.stderr)
                took = 0
            if how_long == "once" and took is not None:
                return
            if took is None:
                if how_long == "leave":
                    return
                time.sleep(LOOK)


if __name__ == "__main__":
    main(*sys.argv[1:])
