"""The documentation names things that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REPORTS = (ROOT / "docs/field-reports.md").read_text()
CITED = re.compile(r"[Rr]eports? (\d+(?:(?:, | and )\d+)*)")
CODES = re.compile(r"^test_([a-z]?\d{2,3}_)+[a-z]|_reports?(_\d+)+$|^test_[a-n]\d+_")


def definitions() -> Iterator[tuple[str, str, str]]:
    """Give path, name and docstring of whatever has one in the tests."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                where = str(path.relative_to(ROOT))
                yield where, getattr(node, "name", ""), ast.get_docstring(node) or ""


def test_every_report_that_a_test_cites_is_listed() -> None:
    listed = set(re.findall(r"^\| (\d+) \|", REPORTS, re.MULTILINE))
    cited = {
        (number, path, name)
        for path, name, docstring in definitions()
        for numbers in CITED.findall(docstring)
        for number in re.findall(r"\d+", numbers)
    }
    assert len(cited) > 100
    assert [each for each in sorted(cited) if each[0] not in listed] == []


def test_every_listed_test_cites_its_report() -> None:
    docstrings = {(path, name): docstring for path, name, docstring in definitions()}
    silent = [
        (number, path, name)
        for number, path, name in re.findall(r"^\| (\d+) \|.*`(tests/\S+)::(\w+)` \|$", REPORTS, re.MULTILINE)
        if number not in re.findall(r"\d+", " ".join(CITED.findall(docstrings[path, name])))
    ]
    assert silent == []


def test_no_test_carries_the_code_of_a_report_in_its_name() -> None:
    names = [name for _, name, _ in definitions() if name.startswith("test_")]
    assert len(names) > 500
    assert [name for name in names if CODES.search(name)] == []


@pytest.mark.parametrize("reference", sorted(set(re.findall(r"`(tests/\S+::\w+)`", REPORTS))))
def test_every_test_that_the_field_reports_name_exists(reference: str) -> None:
    path, name = reference.split("::")
    assert re.search(rf"def {name}\(", (ROOT / path).read_text())


@pytest.mark.parametrize(
    "page", ["README.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]
)
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    source = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)\)", source.read_text()):
        assert (source.parent / target).exists(), target
