"""A lease as a value: the right to end a job until a time, and where the job stood."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from .payloads import decode_payload
from .states import Fencing

# (job id, generation): what every fenced write presents.
Key = tuple[int, int]
# (negated priority, id): where a job stands in the claim index of its queue.
Position = tuple[int, int]
START: Position = (-32768, 0)
NOWHERE: Mapping[str, Position] = MappingProxyType({})


class Lease(NamedTuple):
    """One claim of one job. `generation` is the fencing number that every later write must present.

    `payload` is the JSON text of the arguments, `duration` how far a renewal pushes the lease ahead. The fields up to
    `claimed_at` are the columns that a claim returns, in their order.
    """

    job_id: int
    generation: int
    attempt: int
    max_attempts: int
    task: str
    queue: str
    priority: int
    backend: str
    payload: str
    worker_ids: list[str]
    enqueued_at: datetime
    started_at: datetime | None
    claimed_at: datetime | None
    worker: str
    duration: timedelta
    fencing: Fencing = Fencing.TOKEN

    @property
    def key(self) -> Key:
        """What every later write presents."""
        return self.job_id, self.generation

    @property
    def position(self) -> Position:
        """Where the job stood in the claim index."""
        return -self.priority, self.job_id

    @property
    def is_strict(self) -> bool:
        """Whether a write after the lease has expired is refused although nobody has reclaimed the job."""
        return self.fencing == Fencing.STRICT

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments of the job. Raises InvalidPayload for another shape."""
        return decode_payload(self.payload)


def columns(leases: Sequence[Lease]) -> dict[str, list[Any]]:
    """Return the keys of leases as a statement takes them: `ids` and `generations`."""
    return {"ids": [lease.job_id for lease in leases], "generations": [lease.generation for lease in leases]}


def left_alone(keys: Collection[Key]) -> dict[str, list[int]]:
    """Return the keys of jobs that a statement shall leave alone, as it takes them."""
    return {"held_ids": [key[0] for key in keys], "held_generations": [key[1] for key in keys]}
