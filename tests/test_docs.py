"""The documentation names things that exist."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from django_pgqueue.states import State

ROOT = Path(__file__).parents[1]
REPORTS = (ROOT / "docs/field-reports.md").read_text()


@pytest.mark.parametrize("reference", sorted(set(re.findall(r"`(tests/\S+::\w+)`", REPORTS))))
def test_every_test_that_the_field_reports_name_exists(reference: str) -> None:
    path, name = reference.split("::")
    assert re.search(rf"def {name}\(", (ROOT / path).read_text())


PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES)
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    source = ROOT / page
    for target in re.findall(r"\]\(([^)#:]+)\)", source.read_text()):
        assert (source.parent / target).exists(), target


def shell_lines(page: str) -> list[str]:
    """Return the lines of a page's shell examples."""
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


def test_contributing_sets_up_and_tests_as_the_readme_which_the_ci_runs() -> None:
    set_up, one_test, all_tests, _checks = shell_lines("CONTRIBUTING.md")
    assert f"{set_up} && {all_tests}" in shell_lines("README.md")
    assert one_test.startswith(f"{all_tests} tests/")
    assert (ROOT / one_test.removeprefix(all_tests).split()[0]).exists()


def test_the_ci_finds_one_line_of_checks_in_contributing() -> None:
    (pattern,) = re.findall(r"grep -m1 -E '(.+)' CONTRIBUTING\.md", (ROOT / ".ci/run").read_text())
    found = [line for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines() if re.search(pattern, line)]
    assert found == shell_lines("CONTRIBUTING.md")[-1:]


def test_the_hooks_are_the_checks_of_contributing() -> None:
    checks = shell_lines("CONTRIBUTING.md")[-1].replace(".venv/bin/", "").split(" && ")
    hooks = re.findall(r"^ +entry: (.+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    assert hooks == [check for check in checks if not check.startswith("python ")]


ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]


def test_the_diagram_of_states_shows_every_state_and_no_other() -> None:
    (diagram,) = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", ARCHITECTURE, re.DOTALL)
    arrows = re.findall(r"^ +(\S+) --> (\S+): [\w ,]+$", diagram, re.MULTILINE)
    assert len(arrows) == len(diagram.splitlines())
    assert {name for arrow in arrows for name in arrow} == {*State.values, "[*]"}


@pytest.mark.parametrize(
    ("heading", "package"),
    [("## Floors", "django_pgqueue"), ("### Inside the worker", "django_pgqueue.worker")],
)
def test_the_floors_that_the_page_shows_are_those_that_are_checked(heading: str, package: str) -> None:
    table = ARCHITECTURE.partition(f"{heading}\n")[2].partition("\n#")[0]
    shown = [set(re.findall(r"`(\w+)`", row)) for row in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)]
    (layers,) = (
        contract["layers"]
        for contract in CONTRACTS
        if contract["type"] == "layers" and package in contract["containers"]
    )
    checked = [
        {name for name in re.findall(r"\w+", layer) if find_spec(f"{package}.{name}")} for layer in layers
    ]
    assert shown == [floor for floor in checked if floor]
