"""A small TCP proxy between a worker and its server that can freeze, cut, refuse, and hold one commit."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress

from .target import Target
from .traps import Trap
from .wire import Requests

CHUNK = 65536
_CHANGED_ROWS = re.compile(rb"(?:UPDATE|INSERT 0) [1-9]")


class Proxy:
    """Listens on a free local port; every connection to it is one to the target. Use it as a context manager."""

    def __init__(self, target: Target) -> None:
        self._host, self._port = target.params["host"], int(target.params.get("port") or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        self._links: set[Link] = set()
        self._lock = threading.Lock()
        self.trap: Trap | None = None
        self.refusing = False
        port = str(self._listener.getsockname()[1])
        plain = {"sslmode": "disable", "gssencmode": "disable"}  # the proxy reads what passes
        self.target = target.without("hostaddr").but(host="127.0.0.1", port=port, **plain)

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, name="lab-proxy", daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.close()
        if self.trap:
            self.trap.drop()
        self.thaw()
        self.cut()

    def set_trap(self, marker: str, *, at: str) -> Trap:
        """Arm a trap for the next connection or transaction that fits."""
        self.trap = Trap(marker, at=at)
        return self.trap

    def freeze(self) -> None:
        """Let nothing pass, in either direction; connections stay open, as in a partition."""
        self._open.clear()

    def thaw(self) -> None:
        """Let everything pass again, what was held first."""
        self._open.set()

    def cut(self) -> None:
        """Reset every connection."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def pass_through(self) -> None:
        """Return once bytes may pass."""
        self._open.wait()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                if self.refusing:
                    client.close()
                    continue
                with suppress(OSError):  # the server is away: the client sees its connection closed
                    try:
                        server = self._connect()
                    except OSError:
                        client.close()
                        raise
                    with self._lock:
                        self._links.add(link := Link(self, client, server))
                    link.start()

    def _connect(self) -> socket.socket:
        if not self._host.startswith(("/", "@")):
            return socket.create_connection((self._host, self._port), timeout=10)
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return connection

    def forget(self, link: Link) -> None:
        """Drop a link that has ended."""
        with self._lock:
            self._links.discard(link)


class Link:
    """One client's connection and its way to the server: a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._server.settimeout(None)
        self._marked = self._changed = self._held = False
        self._requests = Requests()

    def start(self) -> None:
        """Start both directions."""
        for source, sink, look in (
            (self._client, self._server, self._on_request),
            (self._server, self._client, self._on_reply),
        ):
            threading.Thread(
                target=self._pump, args=(source, sink, look), name="lab-link", daemon=True
            ).start()

    def close(self) -> None:
        """Close both ends."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            with suppress(OSError):
                end.close()
        self._proxy.forget(self)

    def _pump(self, source: socket.socket, sink: socket.socket, look: object) -> None:
        assert callable(look)
        with suppress(OSError):
            while chunk := source.recv(CHUNK):
                self._proxy.pass_through()
                if not look(chunk):
                    break
                sink.sendall(chunk)
        self.close()

    def _on_request(self, chunk: bytes) -> bool:
        said = self._requests.feed(chunk)
        trap = self._proxy.trap
        if trap is None or trap.caught.is_set():
            return True
        self._marked = trap.marker in said
        if b"BEGIN" in said:
            self._changed = False
        elif self._changed and b"COMMIT" in said:
            if trap.at == "request":
                return trap.hold()
            self._held = True
        return True

    def _on_reply(self, chunk: bytes) -> bool:
        trap = self._proxy.trap
        if trap is not None and self._held and not trap.caught.is_set():
            return trap.hold()
        if self._marked and _CHANGED_ROWS.search(chunk):
            self._changed = True
        return True
