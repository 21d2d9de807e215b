"""A module of handlers that starts a program when it is imported, as some libraries do."""

import subprocess

program = subprocess.Popen(["sleep", "600"])
