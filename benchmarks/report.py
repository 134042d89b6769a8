"""The results as Markdown."""

from __future__ import annotations

from statistics import median

from .bars import BARS, BUFFERS
from .results import Results, number

INTRODUCTION = """\
Written by `python -m benchmarks`. Medians of the rounds, with the least and the most. A ratio is taken within each
round, so that what slows a round down slows both of its parts; its median is what counts. Commits are durable.
A drain is timed by the database's clock, from the moment all workers may begin until the last job has ended."""
GROUPS = {
    "floor": "Floors: raw statements through psycopg",
    "enqueue": "Enqueue",
    "drain": "Drain of no-op jobs with 200 bytes of payload",
    "history": "The same drain at defaults beside other rows",
    "snapshot": "The same drain at defaults while a snapshot is held",
    "cost": "Cost of a job at defaults, beside the raw statements in batches",
    "pickup": "Pick-up by an idle worker: from the call of `enqueue()` to the job's first line",
    "memory": "Memory of a worker at defaults",
    "against": "Other queues, on the same server in the same run",
}


def markdown(results: Results) -> str:
    """Return the whole page."""
    parts = [
        "# Benchmarks",
        INTRODUCTION,
        _table(("where", ""), [(name, str(value)) for name, value in results.facts.items()]),
        "## Bars",
        _table(("measure", "bar", "measured", "least – most", ""), _bars(results)),
    ]
    if results.notes.get("buffers"):
        parts += [
            "## Buffers",
            f"Table: {results.notes.get('buffers of', 'see the names')}.",
            _buffers(results),
        ]
    for group, title in GROUPS.items():
        rows = _samples(results, group)
        if rows:
            parts += [f"## {title}", _table(("", "median", "least – most", "unit"), rows)]
    wrong = ", ".join(f"{name}: {count}" for name, count in results.wrong.items()) or "none"
    parts.append(f"Jobs lost, run twice or refused, of {results.checked_jobs:,} that were checked: {wrong}.")
    parts.append(
        f"Jobs that a worker claimed and gave back without having begun them: {results.given_back:,}."
    )
    return "\n\n".join(parts) + "\n"


def _bars(results: Results) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for bar in BARS:
        values = bar.values(results)
        sign = "≤" if bar.at_most else "≥"
        limit = f"{sign} {bar.limit:g} {bar.unit}"
        if not values:
            rows.append((bar.title, limit, "not measured", "", ""))
            continue
        verdict = "met" if bar.is_met(values) else "**not met**"
        rows.append((bar.title, limit, f"{median(values):.3g} {bar.unit}", _range(values), verdict))
    return rows


def _buffers(results: Results) -> str:
    rows = []
    for name, found in results.notes["buffers"].items():
        budget = BUFFERS.get(name)
        verdict = "" if budget is None else "met" if found <= budget else "**not met**"
        rows.append((name, f"≤ {budget}" if budget else "", str(found), verdict))
    return _table(("statement", "budget", "buffers", ""), rows)


def _samples(results: Results, group: str) -> list[tuple[str, ...]]:
    return [
        (name.partition("/")[2], number(median(values)), _range(values), results.units[name])
        for name, values in results.samples.items()
        if name.partition("/")[0] == group
    ]


def _range(values: list[float]) -> str:
    return f"{number(min(values))} – {number(max(values))}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
