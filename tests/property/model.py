"""A job as DESIGN section 3 describes it, in plain Python: no database, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field

LIVE = ("scheduled", "ready", "running")
ENDED = ("done", "failed", "cancelled")


@dataclass
class Job:
    """One job. `ended_how` says of each generation how it ended: by its own write, or because its lease ran out."""

    id: int
    queue: str
    priority: int
    max_attempts: int
    unique_key: str | None
    state: str
    due: bool = False
    generation: int = 0
    attempts: int = 0
    workers: list[str] = field(default_factory=list)
    expired: bool = False
    cancel_requested: bool = False
    result: object = None
    ended_how: dict[int, str] = field(default_factory=dict)
    failures: list[tuple[int, str]] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def is_lost(self) -> bool:
        """Whether its lease has run out."""
        return self.state == "running" and self.expired

    @property
    def is_spent(self) -> bool:
        return self.attempts >= self.max_attempts

    def claim(self, worker: str) -> None:
        self.state, self.expired = "running", False
        self.generation += 1
        self.attempts += 1
        self.workers.append(worker)

    def lose(self) -> None:
        """The lease of the present generation has run out, and somebody acts on it."""
        self.ended_how[self.generation] = "lease_expired"
        self.failures.append((self.generation, "lease_expired"))

    def reclaim(self, worker: str) -> None:
        self.lose()
        self.claim(worker)

    def exhaust(self) -> None:
        self.lose()
        self.state = "cancelled" if self.cancel_requested else "failed"

    def verdict(self, generation: int, action: str, *, strict: bool) -> str:
        """Return what a fenced write of this generation gets."""
        again = action != "renew" and self.ended_how.get(generation) == action
        if self.generation > generation:
            # That a completion was undone by an operator's retry leaves no trace once the job is claimed again.
            return "already_accepted" if again else "superseded"
        if self.state != "running":
            return "already_accepted" if again else "not_running"
        return "expired" if strict and self.expired else "accepted"

    def end(self, action: str, state: str, *, result: object = None, kind: str | None = None) -> None:
        """The owner ends the present generation; `state` is the one it asks for."""
        self.ended_how[self.generation] = action
        if kind:
            self.failures.append((self.generation, kind))
        if action == "release":
            self.attempts = max(self.attempts - 1, 0)
        if state in ("ready", "scheduled"):
            if self.cancel_requested:
                state = "cancelled"
            elif self.is_spent:
                state = "failed"
        self.state, self.expired, self.due, self.result = state, False, False, result

    def cancel(self) -> str | None:
        """Return what the operator is told, None if the job has ended."""
        if not self.is_live:
            return None
        self.cancel_requested = True
        if self.state == "running":
            return "cancellation requested"
        self.state = "cancelled"
        return "cancelled"

    def retry(self) -> None:
        if self.state == "done":
            # The row no longer says that it was done: it looks as if it had been given back.
            self.ended_how[self.generation] = "release"
        self.state, self.attempts, self.cancel_requested, self.result = "ready", 0, False, None


def claimable(jobs: list[Job], limit: int) -> list[Job]:
    """Return the jobs that a claim takes: queue by queue, in each the best priority first, then by id."""
    ready = [job for job in jobs if job.state == "ready"]
    return sorted(ready, key=lambda job: (job.queue, -job.priority, job.id))[:limit]
