"""Holds one commit of a worker, before the server has seen it or before the worker hears of it."""

from __future__ import annotations

import threading


class Trap:
    """Holds one COMMIT: of the first transaction whose `marker` statement changed rows.

    `at` "request": the server has not seen the commit; "reply": the server has committed, and the client does
    not know. `caught` tells that it holds; `drop` cuts the connection there, `let_go` lets it pass.
    """

    def __init__(self, marker: str, *, at: str) -> None:
        self.marker = marker.encode()
        self.at = at
        self.caught = threading.Event()
        self.cut = False
        self._released = threading.Event()

    def hold(self) -> bool:
        """Wait until released; return whether the bytes may pass."""
        self.caught.set()
        self._released.wait()
        return not self.cut

    def drop(self) -> None:
        """Cut the held connection: the request was never sent, or its reply is lost."""
        self.cut = True
        self._released.set()

    def let_go(self) -> None:
        """Let the held bytes pass."""
        self._released.set()
