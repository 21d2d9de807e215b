"""The network of one supervisor: all that it and its workers say to the server goes through here, and can be cut."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Literal

Cut = Literal["stall", "reset"]


class Network:
    """Carries bytes to `port` of this machine and back, until it is cut.

    `stall`: nothing arrives and nothing is said, as with a cable pulled. `reset`: what is open is reset, so is what comes.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listener.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._refuses = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, how: Cut) -> None:
        """Cut it."""
        if how == "stall":
            self._flows.clear()
            return
        self._refuses = True
        with self._lock:
            for one in self._open:
                _reset(one)

    def heal(self) -> None:
        """Let through what waits, and what comes."""
        self._refuses = False
        self._flows.set()

    def close(self) -> None:
        """End it."""
        self.heal()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        self._flows.wait()
        try:
            if self._refuses:
                raise ConnectionRefusedError
            server = socket.create_connection(("127.0.0.1", self._port))
        except OSError:
            _reset(client)
            client.close()
            return
        pair = {client, server}
        with self._lock:
            self._open |= pair
        back = threading.Thread(target=self._copy, args=(server, client), daemon=True)
        back.start()
        self._copy(client, server)
        back.join()
        with self._lock:
            self._open -= pair
        for one in pair:
            one.close()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                target.sendall(data)
        # Either way is over: a server that has ended a session is not to wait for its client, nor a client for a dead server.
        self._flows.wait()
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _reset(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RDWR)
