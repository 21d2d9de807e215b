"""The torture run: `make torture`. What it shows stands in `checker.py`, what it does in `nemesis.py`."""
