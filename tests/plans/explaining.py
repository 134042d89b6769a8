"""EXPLAIN of exactly the statements that the package sends, in transactions that are rolled back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connections, transaction


class Explained(Exception):
    """Carries a plan out of the function that was about to read the statement's rows."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan


@dataclass(frozen=True)
class Plan:
    """What EXPLAIN (ANALYZE, BUFFERS) said of one statement."""

    root: dict[str, Any]

    @property
    def buffers(self) -> int:
        """Shared buffers touched, found in memory or not."""
        return self.root["Shared Hit Blocks"] + self.root["Shared Read Blocks"]

    @property
    def rows(self) -> float:
        return self.root["Actual Rows"]

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in self.nodes() if "Index Name" in node}

    @property
    def conditions(self) -> str:
        """What the indexes were asked, as text."""
        return " ".join(node.get("Index Cond", "") for node in self.nodes())

    @property
    def scans_the_table(self) -> bool:
        return any(node["Node Type"] == "Seq Scan" for node in self.nodes())

    def nodes(self) -> Iterator[dict[str, Any]]:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.get("Plans", [])

    def __str__(self) -> str:
        return json.dumps(self.root, indent=1)


def explain(work: Callable[[], Any], *, using: str) -> Plan:
    """Return the plan of the first query that `work` sends, which is then rolled back.

    Measured at its second run: the first one of a session also reads the catalogue.
    """
    _explain_once(work, using)
    return _explain_once(work, using)


def _explain_once(work: Callable[[], Any], using: str) -> Plan:
    def instead(execute: Any, statement: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if statement.lstrip().startswith(("SAVEPOINT", "RELEASE", "ROLLBACK")):
            return execute(statement, params, many, context)
        execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params, many, context)
        (answer,) = context["cursor"].fetchone()
        raise Explained(Plan(answer[0]["Plan"]))

    try:
        with transaction.atomic(using=using), connections[using].execute_wrapper(instead):
            work()
    except Explained as explained:
        return explained.plan
    raise AssertionError("no statement was sent")
