"""EXPLAIN of exactly the statements that the package sends, in transactions that are rolled back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connections, transaction
from psycopg.sql import Literal


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


def explain(work: Callable[[], Any], *, using: str, kept: bool = False) -> Plan:
    """Return the plan of the first query that `work` sends, which is then rolled back.

    Measured at its second run: the first one of a session also reads the catalogue. With `kept` it is the plan that
    the server keeps for a worker's statement, made for any number of rows.
    """
    _explain_once(work, using, kept)
    return _explain_once(work, using, kept)


def _kept(execute: Any, statement: str, params: Any, context: dict[str, Any]) -> str:
    """PREPARE a statement as psycopg does, and return the EXECUTE with the values of this run."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", statement)
    execute(
        "SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL enable_seqscan = off", None, False, context
    )
    execute(f"DEALLOCATE ALL; PREPARE kept AS {numbered}", None, False, context)
    values = ", ".join(Literal(params[name]).as_string(context["cursor"].cursor) for name in names)
    return f"EXECUTE kept ({values})"


def _explained(execute: Any, statement: str, params: Any, context: dict[str, Any]) -> Plan:
    execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params, False, context)
    (answer,) = context["cursor"].fetchone()
    return Plan(answer[0]["Plan"])


def _explain_once(work: Callable[[], Any], using: str, kept: bool) -> Plan:
    def instead(execute: Any, statement: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if statement.lstrip().startswith(("SAVEPOINT", "RELEASE", "ROLLBACK")):
            return execute(statement, params, many, context)
        if kept:
            statement, params = _kept(execute, statement, params, context), None
        raise Explained(_explained(execute, statement, params, context))

    try:
        with transaction.atomic(using=using), connections[using].execute_wrapper(instead):
            work()
    except Explained as explained:
        return explained.plan
    raise AssertionError("no statement was sent")
