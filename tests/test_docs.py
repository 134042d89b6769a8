"""The documentation names things that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REPORTS = (ROOT / "docs/field-reports.md").read_text()


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
