"""A proxy before PostgreSQL that knows the statements by name, and has them fail: cut, late, never answered, refused, garbled.

It reads just enough of the protocol (version 3, in plain text) to know which statement a message carries, and where the answer
to it ends. A statement is known by its text, which is that of its `.sql` file with something else for each parameter.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Literal

from fencepost import jobs
from fencepost.jobs.sql import statement

Way = Literal["cut_before", "cut_after", "delay", "hang_before", "hang_after", "error", "garble"]
"""Ways to fail. `before`: the server never hears of it; `after`: it was carried out, and nobody hears of that."""

CONNECT = "connect"
"""What a session's start is called, as if it were a statement."""

FATAL = {"53300", "57P01"}
"""sqlstates that come with the end of the session."""

PARAMETER = re.compile(r"%\(\w+\)s")
NEXT = re.compile(r"\s*;\s*")
SSL, GSS, CANCEL = 80877103, 80877104, 80877102


@dataclass(eq=False)
class Fault:
    """What befalls the `nth` occurrence of a statement from now on, of those that `who` sends; then it has `hit`.

    `who` is the end of a session's name: `duty`, `booking`, `heartbeat`, `listen`, or `worker`. `seconds` is for `delay`.
    """

    statement: str
    who: str
    way: Way
    sqlstate: str = ""
    seconds: float = 0.0
    nth: int = 1
    hit: threading.Event = field(default_factory=threading.Event)

    def __str__(self) -> str:
        how = {"error": self.sqlstate, "delay": f"{self.seconds:g} s late"}.get(self.way, self.way)
        return f"{self.who} {self.statement}: {how}"


def names() -> list[str]:
    """Return the names of all statements on the table."""
    return sorted(file.name.removesuffix(".sql") for file in resources.files(jobs).iterdir() if file.name.endswith(".sql"))


def names_in(query: str) -> tuple[str, ...]:
    """Return the names of the statements that travel in a message, none if it is nobody's of ours."""
    found: list[str] = []
    at = 0
    while True:
        ends = {match.end(): name for name, form in _forms().items() if (match := form.match(query, at))}
        if not ends:
            return tuple(found)
        # One may begin as another does.
        found.append(ends[max(ends)])
        following = NEXT.match(query, max(ends))
        if following is None:
            return tuple(found)
        at = following.end()


@cache
def _forms() -> dict[str, re.Pattern[str]]:
    texts = {name: statement(name, "fencepost").decode().strip() for name in names()}
    return {
        name: re.compile(".*?".join(re.escape(part.replace("%%", "%")) for part in PARAMETER.split(text)), re.DOTALL)
        for name, text in texts.items()
    }


class Proxy:
    """Carries sessions to `port` of this machine, and has faults befall them that were armed. `seen` is who sent what."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self._listener.getsockname()[1]
        self.seen: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._armed: list[Fault] = []
        self._sessions: set[Session] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url: str) -> str:
        """Return the address of a database through the proxy."""
        return url.replace(f":{self._port}/", f":{self.port}/") + "?sslmode=disable&gssencmode=disable&connect_timeout=2"

    def arm(self, fault: Fault) -> Fault:
        """Have the fault happen."""
        with self._lock:
            self._armed.append(fault)
        return fault

    def disarm(self) -> None:
        """Have nothing happen any more."""
        with self._lock:
            self._armed.clear()

    def has(self, who: str) -> bool:
        """Whether `who` has a session open."""
        return any(session.who == who for session in self._open())

    def cut(self, who: str) -> None:
        """Cut the sessions that are open."""
        for session in self._open():
            if session.who == who:
                session.cut()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for session in self._open():
            session.cut()

    def fault_of(self, who: str, sent: tuple[str, ...]) -> Fault | None:
        """Return what befalls a message, if anything does; it has happened then."""
        with self._lock:
            self.seen |= {(who, name) for name in sent}
            meant = [fault for fault in self._armed if fault.who == who and fault.statement in sent]
            for fault in meant:
                fault.nth -= 1
            due = next((fault for fault in meant if fault.nth <= 0), None)
            if due is not None:
                self._armed.remove(due)
        if due is not None:
            due.hit.set()
        return due

    def forget(self, session: Session) -> None:
        """Know that a session is over."""
        with self._lock:
            self._sessions.discard(session)

    def _open(self) -> list[Session]:
        with self._lock:
            return list(self._sessions)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                session = Session(self, self._listener.accept()[0], self._port)
                with self._lock:
                    self._sessions.add(session)
                threading.Thread(target=session.carry, daemon=True).start()


class Session:
    """One session. Nothing is sent before the answer to what was sent before it, so the answer is that of the last message."""

    def __init__(self, proxy: Proxy, client: socket.socket, port: int) -> None:
        self.who = ""
        self._proxy = proxy
        self._client = client
        self._server = socket.create_connection(("127.0.0.1", port))
        for one in (self._client, self._server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._status = b"I"
        self._prepared: dict[bytes, tuple[str, ...]] = {}
        self._after: Fault | None = None
        self._silent = False

    def carry(self) -> None:
        """Carry all there is to carry, both ways."""
        back: threading.Thread | None = None
        try:
            first = self._first()
            back = threading.Thread(target=self._carry_back, daemon=True)
            back.start()
            self._send(first, (CONNECT,) if self.who else ())
            batch, sent = b"", ()
            for kind, message in _messages(self._client):
                batch += message
                if kind == b"P":
                    name, query, *_ = message[5:].split(b"\0")
                    self._prepared[name] = sent = names_in(query.decode())
                elif kind == b"B":
                    sent = self._prepared.get(message[5:].split(b"\0")[1], ())
                elif kind == b"Q":
                    sent = names_in(message[5:-1].decode())
                # What is only parsed has not been sent yet.
                if kind not in b"PBDEC":
                    self._send(batch, sent if kind == b"Q" or b"E" in _kinds(batch) else ())
                    batch, sent = b"", ()
        except (OSError, EOFError):
            pass
        finally:
            self.cut()
            if back is not None:
                back.join()
            for one in (self._client, self._server):
                one.close()
            self._proxy.forget(self)

    def cut(self) -> None:
        """End it, at both ends."""
        for one in (self._client, self._server):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _first(self) -> bytes:
        while True:
            head = _exactly(self._client, 8)
            length, code = struct.unpack("!ii", head)
            if code not in (SSL, GSS):
                break
            self._client.sendall(b"N")
        body = _exactly(self._client, length - 8)
        if code != CANCEL:
            self.who = _who(dict(zip(*[iter(body.split(b"\0"))] * 2, strict=False)).get(b"application_name", b"").decode())
        return head + body

    def _send(self, batch: bytes, sent: tuple[str, ...]) -> None:
        fault = self._proxy.fault_of(self.who, sent) if sent and not self._silent else None
        if fault is None:
            if not self._silent:
                self._server.sendall(batch)
            return
        match fault.way:
            case "cut_before":
                raise EOFError
            case "hang_before":
                self._silent = True
            case "delay":
                time.sleep(fault.seconds)
                self._server.sendall(batch)
            case "error":
                self._refuse(fault.sqlstate, fatal=fault.sqlstate in FATAL or sent == (CONNECT,))
            case _:
                self._after = fault
                self._server.sendall(batch)

    def _refuse(self, sqlstate: str, *, fatal: bool) -> None:
        """Answer with an error that the server knows nothing of: a transaction of its is left open for the client to end."""
        severity = "FATAL" if fatal else "ERROR"
        fields = f"S{severity}\0V{severity}\0C{sqlstate}\0Mthe test has this fail with {sqlstate}\0\0".encode()
        self._client.sendall(_message(b"E", fields))
        if fatal:
            raise EOFError
        self._client.sendall(_message(b"Z", b"I" if self._status == b"I" else b"E"))

    def _carry_back(self) -> None:
        held = b""
        try:
            for kind, message in _messages(self._server):
                if kind == b"Z":
                    self._status = message[5:6]
                if self._silent:
                    continue
                held += message
                fault = self._after
                if fault is None:
                    self._client.sendall(held)
                    held = b""
                elif kind == b"Z":
                    self._after, answer, held = None, held, b""
                    if fault.way == "cut_after":
                        break
                    if fault.way == "hang_after":
                        self._silent = True
                    else:
                        # Bytes are missing in the middle: lengths and types are what they are not.
                        third = max(1, len(answer) // 3)
                        self._client.sendall(answer[:third] + answer[2 * third :])
        except (OSError, EOFError):
            pass
        if not self._silent:
            self.cut()


def _who(application: str) -> str:
    if not application.startswith("fencepost "):
        return application or "somebody"
    return "worker" if application.startswith("fencepost w") else application.rpartition(" ")[2]


def _messages(source: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Yield each message with its type, until there are no more."""
    while True:
        head = _exactly(source, 5)
        yield head[:1], head + _exactly(source, struct.unpack("!i", head[1:])[0] - 4)


def _kinds(batch: bytes) -> bytes:
    kinds, at = b"", 0
    while at < len(batch):
        kinds += batch[at : at + 1]
        at += 1 + struct.unpack_from("!i", batch, at + 1)[0]
    return kinds


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _exactly(source: socket.socket, length: int) -> bytes:
    read = bytearray()
    while len(read) < length:
        if not (data := source.recv(length - len(read))):
            raise EOFError
        read += data
    return bytes(read)
