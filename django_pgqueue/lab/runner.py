"""Runs scenarios one after the other on one disposable database, and sums up."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, Any

from django.db import connections

from . import tables
from .evidence import document, surroundings, verdict, write
from .processes import migrate
from .recorder import Log, Recorder
from .scenario import Scenario, Skip
from .scenarios import ALL
from .servers import embedded
from .stage import Place, Stage
from .target import ALIAS, configured, disposable, is_pooled, reachable
from .waiting import Unreached

FAILED, NOTHING_RAN, INTERRUPTED = 1, 3, 130
LOGS_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the caller asks for: `embedded` None means the server of the alias `using`, "" the wheel's programs."""

    using: str
    scenarios: Sequence[Scenario]
    seed: int
    listen: bool = True
    embedded: str | None = None
    evidence: Path | None = None
    pause: Callable[[], None] | None = None


class UnknownScenario(ValueError):
    """A name that no scenario has."""


def chosen(names: Sequence[str] | None) -> list[Scenario]:
    """Return the scenarios of these names, in their own order; None: those that run by default."""
    if names is None:
        return [scenario for scenario in ALL if scenario.by_default]
    unknown = sorted(set(names) - {scenario.name for scenario in ALL})
    if unknown:
        raise UnknownScenario(f"no scenario is called {', '.join(unknown)}; --list shows them all")
    return [scenario for scenario in ALL if scenario.name in names]


def run(wish: Wish, out: IO[str]) -> int:
    """Run, print, write the evidence and leave nothing behind. Returns the exit code."""
    logs: list[Log] = []
    interrupted = False
    began_at = datetime.now(UTC)
    with _interruptible() as shield, _place(wish) as place:
        environment, settings = surroundings(place)
        out.write(f"PostgreSQL {environment['postgresql']}, database {place.target.name}")
        out.write(f"{', through a pooler' if place.pooled else ''}, seed {wish.seed}\n")
        try:
            for scenario in wish.scenarios:
                logs.append(log := Log(name=scenario.name, title=scenario.title, group=scenario.group))
                _tell(scenario, log, place, wish, out)
        except KeyboardInterrupt:
            interrupted = True
            logs[-1].verdict, logs[-1].reason = "failed", "interrupted"
        finally:
            shield()
        if wish.evidence:
            write(
                wish.evidence,
                document(
                    logs,
                    place=place,
                    seed=wish.seed,
                    environment=environment,
                    server_settings=settings,
                    began_at=began_at,
                    interrupted=interrupted,
                ),
            )
    _sum_up(logs, out)
    if interrupted:
        return INTERRUPTED
    if all(log.verdict == "skipped" for log in logs):
        return NOTHING_RAN
    return 0 if verdict(logs) == "passed" else FAILED


@contextmanager
def _place(wish: Wish) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="pgqueue-lab-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        server = None if wish.embedded is None else stack.enter_context(embedded(folder, wish.embedded))
        target = stack.enter_context(disposable(server.target() if server else configured(wish.using)))
        migrate(target, folder)
        with target.connect() as session:
            tables.create(session)
        stack.enter_context(reachable(target))
        yield Place(target=target, pooled=is_pooled(target), listen=wish.listen, folder=folder, server=server)


def _tell(scenario: Scenario, log: Log, place: Place, wish: Wish, out: IO[str]) -> None:
    out.write(f"\n== {scenario.name}: {scenario.title}\n")
    recorder = Recorder(log, out, pause=wish.pause)
    recorder.names[place.target.name] = "<database>"
    recorder.names[str(place.folder)] = "<folder>"
    began = time.monotonic()
    with Stage(place, recorder, seed=wish.seed) as stage:
        try:
            connections[ALIAS].close()
            with place.target.connect() as session:
                tables.empty(session)
            scenario.run(stage)
        except Skip as skip:
            log.verdict, log.reason = "skipped", str(skip)
        except KeyboardInterrupt:
            raise
        except Unreached as error:
            recorder.check(str(error).partition("\n")[0], False, str(error))
        except Exception as error:
            recorder.check(f"the scenario comes to its end ({type(error).__name__})", False, str(error))
            recorder.note(traceback.format_exc())
            log.logs["traceback"] = traceback.format_exc()
        if log.verdict == "failed":
            for process in stage.processes[-LOGS_SHOWN:]:
                log.logs[process.log.stem] = process.last_lines
                recorder.note(f"--- {process.name}\n{process.last_lines}")
    log.seconds = time.monotonic() - began
    reason = f": {log.reason}" if log.reason else ""
    out.write(f"   {log.verdict}{reason} ({log.seconds:.1f} s)\n")
    out.flush()


def _sum_up(logs: Sequence[Log], out: IO[str]) -> None:
    out.write("\n")
    for log in logs:
        held = sum(1 for step in log.steps if step.get("holds"))
        detail = log.reason if log.verdict == "skipped" else f"{held} assertions held"
        out.write(f"{log.verdict:>8}  {log.name:<28} {log.seconds:5.1f} s  {detail}\n")
    counts = {kind: sum(log.verdict == kind for log in logs) for kind in ("passed", "failed", "skipped")}
    out.write(", ".join(f"{number} {kind}" for kind, number in counts.items()) + "\n")
    out.flush()


@contextmanager
def _interruptible() -> Iterator[Callable[[], None]]:
    """Turn SIGTERM into KeyboardInterrupt; what is yielded makes the clean-up deaf to both."""
    signals = (signal.SIGINT, signal.SIGTERM)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous: dict[signal.Signals, Any] = {}

    def shield() -> None:
        for number in previous:
            signal.signal(number, signal.SIG_IGN)

    try:
        for number in signals:
            previous[number] = signal.signal(number, interrupt)
    except ValueError:  # not the main thread: its owner has the signals
        pass
    try:
        yield shield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
