"""A module of handlers that kills the process which imports it."""

import ctypes

ctypes.string_at(0)
