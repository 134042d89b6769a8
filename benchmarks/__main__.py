"""python -m benchmarks [--quick] [--only NAME,...] [--against NAME,...] [--runs N]."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from .against import OTHERS, against, prepare
from .bench import QUICK, Bench, Sizes
from .buffers import buffers
from .facts import load, machine_facts
from .history import history, snapshot
from .measures import cost, drains, enqueueing, floors
from .memory import memory
from .pickup import pickup
from .report import markdown
from .server import WORK, server_url

MEASURES: dict[str, Callable[[Bench], None]] = {
    "floors": floors,
    "drains": drains,
    "history": history,
    "enqueueing": enqueueing,
    "cost": cost,
    "snapshot": snapshot,
    "pickup": pickup,
    "memory": memory,
    "buffers": buffers,
}
# What the bars of a measure are compared with must be in the same round.
NEEDS = {"history": ["drains"]}


def main() -> int:
    """Measure, write, and return 1 if a job was lost or run twice."""
    given = _parser().parse_args()
    bench = Bench(server_url(), QUICK if given.quick else Sizes())
    names = _chosen(given.only)
    bench.results.facts.update(machine_facts(bench.main.url))
    for name in given.against:
        prepare(bench, name)
    loads = []
    for number in range(given.runs):
        loads.append(load())
        print(f"round {number + 1} of {given.runs}, load {loads[-1]:.1f}", flush=True)
        for name in names:
            MEASURES[name](bench)
        against(bench)
        loads.append(load())
        bench.results.facts["load, one minute"] = f"{min(loads):.1f} – {max(loads):.1f}"
        _write(bench, given.output)
    print(markdown(bench.results))
    return 1 if bench.results.wrong else 0


def _write(bench: Bench, folder: Path) -> None:
    """Write what there is, after every round."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text(
        json.dumps(asdict(bench.results), indent=1, ensure_ascii=False) + "\n"
    )
    (folder / "benchmarks.md").write_text(markdown(bench.results))


def _chosen(only: list[str]) -> list[str]:
    if only == ["none"]:
        return []
    if not only:
        return list(MEASURES)
    wanted = {need for name in only for need in (name, *NEEDS.get(name, []))}
    return [name for name in MEASURES if name in wanted]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a tenth of the work: to see that it runs, not to quote")
    add(
        "--only", type=_names(MEASURES), default=[], metavar="NAME,...", help=f"{', '.join(MEASURES)} or none"
    )
    add("--against", type=_names(OTHERS), default=[], metavar="NAME,...", help=", ".join(OTHERS))
    add("--runs", type=int, default=3, help="rounds (default: 3)")
    add("--output", type=Path, default=WORK / "results", help="folder for benchmarks.json and benchmarks.md")
    return parser


def _names(known: dict) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known and text != "none":
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
