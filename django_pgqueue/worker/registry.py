"""The leases of this process, and the attempts that have ended and wait to be written."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ..context import Holding
from ..leases import Lease
from ..outcomes import Ending


class Registry:
    """Every lease this process holds, from its claim to the verdict on its ending. Thread-safe.

    The first ending of a lease counts: a job that finishes after its worker gave it back has no second one.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._lock = threading.Lock()
        self._holdings: dict[tuple[int, int], Holding] = {}
        self._endings: list[Ending] = []
        self._wake = wake

    def __len__(self) -> int:
        return len(self._holdings)

    def add(self, holdings: Sequence[Holding]) -> None:
        """Hold leases that were just claimed."""
        with self._lock:
            self._holdings.update({holding.lease.key: holding for holding in holdings})

    def forget(self, leases: Sequence[Lease]) -> None:
        """Drop leases whose endings have their verdicts."""
        with self._lock:
            for lease in leases:
                self._holdings.pop(lease.key, None)

    def get(self, key: tuple[int, int]) -> Holding | None:
        """Return the holding of (job id, generation), if it is still here."""
        return self._holdings.get(key)

    def keys(self) -> list[tuple[int, int]]:
        """Return (job id, generation) of what is held now."""
        with self._lock:
            return list(self._holdings)

    def holdings(self) -> list[Holding]:
        """Return what is held now."""
        with self._lock:
            return list(self._holdings.values())

    def end(self, holding: Holding, ending: Ending | None) -> bool:
        """Queue the ending of a lease, or just drop the lease if there is none; False if it already has one."""
        with self._lock:
            if holding.ended:
                return False
            holding.ended = True
            if ending is None:
                self._holdings.pop(holding.lease.key, None)
            else:
                self._endings.append(ending)
        self._wake.set()
        return True

    def take_endings(self) -> list[Ending]:
        """Return the endings to be written, and hand them to the caller."""
        with self._lock:
            taken, self._endings = self._endings, []
            return taken

    def put_back(self, endings: Sequence[Ending]) -> None:
        """Return endings that have no verdict yet; they will be asked again with the same generation."""
        with self._lock:
            self._endings[:0] = endings

    @property
    def has_endings(self) -> bool:
        """Whether an ending waits to be written."""
        return bool(self._endings)
