"""What the measures share: the server's databases, the queues on them, how much to do, and the results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .project import Project
from .results import Results
from .rows import insert
from .server import count_statements, database

TEMPLATE = "benchmark_template"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much of everything."""

    jobs: int = 50_000
    single_jobs: int = 3_000
    enqueued: int = 3_000
    history: int = 1_000_000
    snapshot_jobs: int = 100_000
    pickups: int = 100
    polls: int = 40
    others_pickups: int = 15
    memory_jobs: int = 100_000


QUICK = Sizes(
    jobs=5_000,
    single_jobs=300,
    enqueued=300,
    history=50_000,
    snapshot_jobs=10_000,
    pickups=15,
    polls=8,
    others_pickups=5,
    memory_jobs=10_000,
)


class Bench:
    """One run of the benchmark."""

    def __init__(self, server: str, sizes: Sizes) -> None:
        self.server = server
        self.sizes = sizes
        self.results = Results()
        self.others: dict[str, Project] = {}
        Project("pgqueue", database(server, TEMPLATE)).call("setup")

    def copy(self, name: str) -> str:
        """Return the address of a new database with the queue's empty tables."""
        return database(self.server, f"benchmark_{name}", template=TEMPLATE)

    @cached_property
    def main(self) -> Project:
        """The queue on an otherwise empty database."""
        return Project("pgqueue", self.copy("main"))

    @cached_property
    def raw(self) -> Project:
        """The raw statements on the same tables."""
        return Project("raw", self.main.url)

    @cached_property
    def counted(self) -> tuple[Project, Project, bool]:
        """The queue and the raw statements on a database whose statements are counted, if the server can."""
        url = self.copy("counted")
        counts = count_statements(url)
        return Project("pgqueue", url), Project("raw", url), counts

    @cached_property
    def with_history(self) -> dict[str, Project]:
        """The queue on databases that hold many rows of one state."""
        made = {}
        for name, state in (("finished jobs", "done"), ("scheduled jobs", "scheduled")):
            made[name] = Project("pgqueue", self.copy(state))
            insert(made[name].url, {state: self.sizes.history})
        return made
