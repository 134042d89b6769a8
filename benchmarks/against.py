"""The same work on other queues, on the same server in the same run, each from an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

from django_pgqueue.lab.waiting import Unreached

from .bench import Bench
from .drain import drain
from .pickup import add, latencies
from .project import Project
from .server import WORK, database


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Another queue: what to install, and by how much fewer jobs than others it is measured with."""

    packages: tuple[str, ...]
    fewer: int = 1
    pickup_gaps: tuple[float, float] = (0.5, 1.3)


OTHERS = {
    "django-tasks-db": Other(
        packages=("django-tasks-db", "psycopg[binary]"), fewer=20, pickup_gaps=(1.1, 2.3)
    ),
    "django-ox": Other(packages=("django-ox", "psycopg[binary]"), fewer=20, pickup_gaps=(1.1, 2.3)),
    "procrastinate": Other(packages=("procrastinate", "psycopg[binary]"), fewer=20),
    "pgqueuer": Other(packages=("pgqueuer[asyncpg]", "psycopg[binary]"), fewer=2),
}


def prepare(bench: Bench, name: str) -> None:
    """Install the queue if it is not, and make its tables; one that cannot be installed here is left out."""
    try:
        bench.others[name] = _installed(bench, name)
    except subprocess.CalledProcessError:
        bench.results.facts[name] = "could not be installed for this Python"


def _installed(bench: Bench, name: str) -> Project:
    adapter = name.replace("-", "_")
    folder = WORK / "environments" / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        print(f"  installing {name}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *OTHERS[name].packages], check=True)
        (folder / "installed").touch()
    version = subprocess.run(
        [python, "-c", f"from importlib.metadata import version; print(version({name!r}))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    bench.results.facts[name] = version
    project = Project(adapter, database(bench.server, f"benchmark_{adapter}"), python=str(python))
    project.call("setup")
    return project


def against(bench: Bench) -> None:
    """All of them; what goes wrong with one is noted, and does not end the run."""
    for name in bench.others:
        try:
            _measure(bench, name)
        except (RuntimeError, Unreached) as error:
            bench.results.notes.setdefault("failures", {})[name] = str(error)
            print(f"  {name}: {error}", flush=True)


def _measure(bench: Bench, name: str) -> None:
    """Drain in each configuration, enqueue, and pick-up of an idle worker at defaults."""
    project, other, sizes, results = bench.others[name], OTHERS[name], bench.sizes, bench.results
    jobs = max(sizes.jobs // other.fewer, 500)
    for configuration, arguments in project.configurations.items():
        results.add_drain(f"against/{name}, {configuration}", drain(project, arguments, jobs))
    if "best" in project.configurations:
        drained = drain(project, project.configurations["best"], jobs, workers=2)
        results.add_drain(f"against/{name}, best, 2 workers", drained)
    seconds = project.call("one", sizes.enqueued)["seconds"]
    results.add(f"against/{name}, enqueue", sizes.enqueued / seconds, "jobs/s")
    shortest, longest = other.pickup_gaps
    found = latencies(
        project, project.configurations["defaults"], sizes.others_pickups, shortest=shortest, longest=longest
    )
    add(bench, f"against/{name}, pick-up", found)
