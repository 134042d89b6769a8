"""The face that both pools show to the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...holding import Holding


class Pool(Protocol):
    """What runs jobs in `size` slots, on threads or in child processes."""

    def start(self) -> None:
        """Start what runs the jobs."""

    def stop(self, timeout: float) -> None:
        """Let what runs jobs end after its job, and wait up to `timeout` seconds for it."""

    @property
    def is_busy(self) -> bool:
        """Whether the process that ends now would be held up by a job."""

    @property
    def free(self) -> int:
        """How many more jobs there is a slot for; negative while jobs wait for one."""

    def submit(self, holdings: Sequence[Holding]) -> None:
        """Run these jobs as slots become free."""

    def take_unstarted(self) -> list[Holding]:
        """Return the jobs that have not begun, which then will not run."""

    def take_measure(self) -> tuple[int, float]:
        """Return how many jobs have ended since the last call, and for how many seconds they ran in all."""

    def longest_wait(self) -> float:
        """Return for how many seconds the first waiting job has waited for a slot."""

    def abandon(self, holding: Holding) -> None:
        """Give up on a job that has run for too long; its ending is decided already."""
