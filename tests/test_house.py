"""Who may do what in the package: only the core writes the state of a job."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from django_pgqueue import sql

PACKAGE = Path(sql.__file__).parents[1]
CORE = {"enqueueing", "leases", "outcomes", "upkeep", "policies"}
# The statements themselves, tables as they come about, and experiments on a database of their own.
ASIDE = {"sql", "migrations", "lab"}

NEW_ROWS = re.compile(r"\b(?:INSERT INTO|COPY) \"?django_pgqueue_job\b")
CHANGED_ROWS = re.compile(
    r"\bUPDATE \"?django_pgqueue_job\b.*?\bSET\b(.*?)(?:\bFROM\b|\bWHERE\b|\bRETURNING\b|$)", re.DOTALL
)
STATE = re.compile(r"\bstate\s*=")


def writes_state(text: str) -> bool:
    """Return whether this is SQL that inserts jobs or sets their state."""
    return bool(NEW_ROWS.search(text)) or any(STATE.search(clause) for clause in CHANGED_ROWS.findall(text))


def statements() -> set[str]:
    """Return the names of the raw statements that write a job's state."""
    modules = [sql]
    for found in pkgutil.walk_packages(getattr(sql, "__path__", []), f"{sql.__name__}."):
        modules.append(importlib.import_module(found.name))
    return {
        name
        for module in modules
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str) and writes_state(value)
    }


def from_sql(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return the names under which a module knows modules of raw statements, and single statements."""
    modules, single = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                parts = [*(node.module or "").split("."), alias.name]
                if "sql" in parts:
                    (single if alias.name.isupper() else modules).add(alias.asname or alias.name)
    return modules, single


def writings(tree: ast.Module, statements: set[str]) -> Iterator[tuple[int, str]]:
    """Give line and kind of whatever writes a job's state here."""
    modules, single = from_sql(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, value=ast.Name(id=module)) if (
                module in modules and name in statements
            ):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Load()) if name in single & statements:
                yield node.lineno, name
            case ast.Constant(value=str(text)) if writes_state(text):
                yield node.lineno, "SQL"
            case ast.Call(
                func=ast.Attribute(attr="update" | "create" | "get_or_create" | "update_or_create" as name)
            ):
                if any(keyword.arg == "state" for keyword in node.keywords) or "Job" in ast.unparse(
                    node.func
                ):
                    yield node.lineno, name
            case ast.Call(func=ast.Name(id="Job")):
                yield node.lineno, "Job()"
            case ast.Call(func=ast.Attribute(attr="bulk_create" | "bulk_update" as name)):
                if "Job" in ast.unparse(node.func):
                    yield node.lineno, name
            case ast.Attribute(attr="state", ctx=ast.Store(), value=ast.Name(id=owner)) if owner != "self":
                yield node.lineno, "an assignment"


def rooms() -> Iterator[tuple[str, str, ast.Module]]:
    """Give path, room and code of each module; a room is a module or folder right below the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        below = path.relative_to(PACKAGE)
        room = below.parts[0].removesuffix(".py")
        if room not in ASIDE:
            yield str(below), room, ast.parse(path.read_text())


def test_only_the_core_writes_the_state_of_a_job() -> None:
    names = statements()
    found = [
        (path, *writing)
        for path, room, tree in rooms()
        if room not in CORE
        for writing in writings(tree, names)
    ]
    assert found == []


def test_every_statement_that_writes_the_state_is_known_and_sent_by_the_core() -> None:
    """The test above would hold too if it recognised nothing."""
    names = statements()
    assert names >= {
        "ENQUEUE",
        "MANY_COPY",
        "CLAIM",
        "RECLAIM",
        "END",
        "EXHAUST",
        "PROMOTE",
        "CANCEL",
        "RETRY",
    }
    assert names.isdisjoint({"RENEW", "OBSERVE", "ORPHANS", "NEXT_DUE", "READY_QUEUES", "SEEN", "PRUNE"})
    sent = {what for _, room, tree in rooms() if room in CORE for _, what in writings(tree, names)}
    assert names <= sent


def test_other_ways_to_write_the_state_are_recognised() -> None:
    ways = [
        "from . import sql\ncursor.execute(sql.CLAIM)",
        "from .sql import claiming\ncursor.execute(claiming.CLAIM)",
        "from ..sql.claiming import CLAIM\ncursor.execute(CLAIM)",
        "Job.objects.filter(pk=1).update(state='ready')",
        "jobs.update(state='ready')",
        "Job.objects.create(task='t')",
        "Job(task='t')",
        "Job.objects.bulk_create(rows)",
        "job.state = 'done'",
        "cursor.execute('UPDATE django_pgqueue_job SET attempts = 0, state = %s WHERE id = 1')",
        "cursor.execute('INSERT INTO django_pgqueue_job (task) VALUES (1)')",
    ]
    assert [way for way in ways if not list(writings(ast.parse(way), {"CLAIM"}))] == []
    innocent = [
        "kind = Action.CLAIM",
        "Rejection.objects.bulk_create(rows)",
        "seen.update(kind=1)",
        "cursor.execute('UPDATE django_pgqueue_job SET lease_until = NULL WHERE state = %s')",
        "self.state = 'done'",
    ]
    assert [way for way in innocent if list(writings(ast.parse(way), {"CLAIM"}))] == []


# Tests that mirror the package stand here; the other folders are of a kind each (races, processes, plans, …).
MIRRORED = ("", "admin", "context", "management", "models", "outcomes", "upkeep", "worker", "worker/loop",
            "worker/running", "worker/services")  # fmt: skip
# About no single module.
OF_THE_WHOLE = {
    "test_docs": "pages",
    "test_house": "floors and names",
    "test_migrations": "migrations as a whole",
    "test_package": "what is shipped",
    "admin/test_databases": "every page on another database",
    "admin/test_escaping": "every page",
    "admin/test_index": "Django's own index page",
    "admin/test_permissions": "every page",
    "admin/test_speed": "every page",
    "worker/test_walk": "a job's way through all rooms",
    "worker/running/test_both_pools": "what both pools have in common",
}


def test_a_test_file_has_the_name_of_the_module_whose_rules_it_tests() -> None:
    tests = Path(__file__).parent
    astray = []
    for folder in MIRRORED:
        modules = {
            path.stem for path in (PACKAGE / folder).iterdir() if path.suffix == ".py" or path.is_dir()
        }
        if folder == "management":
            modules |= {path.stem for path in (PACKAGE / folder / "commands").glob("*.py")}
        for path in (tests / folder).glob("test_*.py"):
            name = str(path.relative_to(tests).with_suffix(""))
            words = path.stem.removeprefix("test_").split("_")
            prefixes = {"_".join(words[:end]) for end in range(1, len(words) + 1)}
            if not prefixes & modules and name not in OF_THE_WHOLE:
                astray.append(name)
    assert astray == []


def test_no_file_of_the_package_is_longer_than_a_reader_bears() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert len(lengths) > 100
    assert {str(path): length for path, length in lengths.items() if length > 300} == {}


def test_no_comment_stands_behind_a_lone_bracket() -> None:
    """There a formatter strands it, and it reads as if it were about the bracket."""
    stranded = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in PACKAGE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.match(r"\s*[)\]}]+[^#\"']{0,6}\s+# ", line)
    ]
    assert stranded == []
