"""A server that speaks TLS, whatever PostgreSQL was built with: a proxy before it, with a certificate of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from pathlib import Path

REQUEST = bytes.fromhex("0000000804d2162f")
"""What a client sends that wants TLS; `S` is the answer that it gets."""


class TlsProxy:
    """Takes TLS connections on a port of its own, and carries what comes to `port` of this machine and back."""

    def __init__(self, port: int, folder: Path) -> None:
        self._port = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*_certificate(folder))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def url(self, url: str) -> str:
        """Return the address of a database through the proxy."""
        port = self._listener.getsockname()[1]
        return url.replace(f":{self._port}/", f":{port}/") + "?sslmode=require"

    def close(self) -> None:
        """End it with all connections."""
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    def _begin(self, act: object, *arguments: object) -> None:
        self._threads.append(threading.Thread(target=act, args=arguments))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._begin(self._carry, self._listener.accept()[0])

    def _carry(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            assert client.recv(len(REQUEST), socket.MSG_WAITALL) == REQUEST
            client.sendall(b"S")
            encrypted = self._context.wrap_socket(client, server_side=True)
            server = socket.create_connection(("127.0.0.1", self._port))
            self._open += [encrypted, server]
            self._begin(_copy, server, encrypted)
            _copy(encrypted, server)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while sent := source.recv(65536):
            target.sendall(sent)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=localhost", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key
