"""`manage.py pgqueue_audit`: check the queue's invariants, read-only."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...audit import audit
from ..arguments import told_in_one_line


class Command(BaseCommand):
    """Exit codes: 0 every invariant holds, 1 one is broken."""

    help = (
        "Checks the queue's invariants with read-only statements; exit code 1 and the ids if one is broken."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")
        parser.add_argument(
            "--database", help="Alias of the queue's database (default: what the routers say)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the audit and print its findings."""
        with told_in_one_line():
            findings = audit(using=options["database"])
        broken = [finding for finding in findings if not finding.holds]
        if options["json"]:
            report = {
                "holds": not broken,
                "invariants": [
                    {
                        "name": item.invariant.name,
                        "text": item.invariant.text,
                        "holds": item.holds,
                        "ids": item.ids,
                    }
                    for item in findings
                ],
            }
            self.stdout.write(json.dumps(report, indent=2))
        else:
            for item in findings:
                verdict = self.style.SUCCESS("holds ") if item.holds else self.style.ERROR("BROKEN")
                ids = f" (jobs {', '.join(map(str, item.ids))})" if item.ids else ""
                self.stdout.write(f"{verdict}  {item.invariant.text}{ids}")
        if broken:
            raise CommandError(f"{len(broken)} of {len(findings)} invariants are broken", returncode=1)
