"""Where `fencepost` and `python -m fencepost` begin.

Invariant: Ctrl-C is never a traceback. The first half second goes by with imports, and Python's last moments belong to nobody,
so neither is left to KeyboardInterrupt.
"""

import os
import signal
from types import FrameType

INTERRUPTED = 130


def main() -> None:
    """Run the command line."""
    # One that was started with Ctrl-C ignored, in the background of a script say, goes on ignoring it.
    heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heeded:
        signal.signal(signal.SIGINT, _leave)
    from fencepost.cli import main as run_command  # noqa: PLC0415  # what takes the time

    try:
        if heeded:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run_command()
    except KeyboardInterrupt:
        # Not by sys.exit: Python ends with the signal itself, whatever the exit code, if the interrupt came in code that was
        # made from text, as dataclasses make theirs.
        os._exit(INTERRUPTED)
    finally:
        if heeded:
            signal.signal(signal.SIGINT, _leave)


def _leave(_signum: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
