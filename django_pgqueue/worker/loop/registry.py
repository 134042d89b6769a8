"""The leases of this process, and the attempts that have ended and wait to be written."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from ...holding import Holding
from ...lease import Key, Lease
from ...outcomes import Ending


class Registry:
    """Every lease this process holds, from its claim to the verdict on its ending. Thread-safe.

    The first ending of a lease counts: a job that finishes after its worker gave it back has no second one. `end` is
    what every job comes through, on its thread, so it takes no lock that jobs of other threads would wait for.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._lock = threading.Lock()  # of `_holdings`: written by the loop, read by every service
        self._holdings: dict[Key, Holding] = {}
        self._open: dict[Holding, None] = {}  # without an ending; whoever takes one out has the say
        self._endings: deque[Ending] = deque()  # written by whoever ends a lease, taken by the loop
        self._wake = wake

    def __len__(self) -> int:
        return len(self._holdings)

    def add(self, holdings: Sequence[Holding]) -> None:
        """Hold leases that were just claimed."""
        with self._lock:
            self._holdings.update({holding.lease.key: holding for holding in holdings})
        for holding in holdings:
            self._open[holding] = None

    def forget(self, leases: Sequence[Lease]) -> None:
        """Drop leases whose endings have their verdicts."""
        with self._lock:
            for lease in leases:
                self._holdings.pop(lease.key, None)

    def keys(self) -> list[Key]:
        """Return the keys of what is held now."""
        with self._lock:
            return list(self._holdings)

    def holdings(self) -> list[Holding]:
        """Return what is held now."""
        with self._lock:
            return list(self._holdings.values())

    def end(self, holding: Holding, ending: Ending | None) -> bool:
        """Queue the ending of a lease, or just drop the lease if there is none; False if it already has one."""
        try:
            del self._open[holding]  # one step for the interpreter: of two threads only one succeeds
        except KeyError:
            return False
        holding.fate.ended = True
        if ending is None:
            self.forget([holding.lease])
        else:
            self._endings.append(ending)
        if not self._wake.is_set():
            self._wake.set()
        return True

    def take_endings(self) -> list[Ending]:
        """Return the endings to be written, and hand them to the caller, who alone takes any."""
        return [self._endings.popleft() for _ in range(len(self._endings))]

    def put_back(self, endings: Sequence[Ending]) -> None:
        """Return endings that have no verdict yet; they will be asked again with the same generation."""
        self._endings.extendleft(reversed(endings))

    @property
    def has_endings(self) -> bool:
        """Whether an ending waits to be written."""
        return bool(self._endings)
