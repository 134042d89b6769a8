"""`manage.py pgqueue_prune`: delete what has been kept long enough, now."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ...upkeep import Prune
from ..arguments import told_in_one_line
from ..worker_options import backend_options


class Command(BaseCommand):
    """Workers prune by themselves; this is for a project that runs them rarely."""

    help = "Deletes ended jobs that are older than KEEP_DONE and KEEP_FAILED, with their records."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--backend", metavar="ALIAS", help="The backend in TASKS whose options hold.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prune page by page until a whole walk has deleted nothing more."""
        _, own, using = backend_options(options["backend"])
        prune = Prune(using=using, keep_done=own.keep_done, keep_failed=own.keep_failed)
        deleted = 0
        with told_in_one_line():
            while (count := prune.run_once()) or prune.after:
                deleted += count
        if options["verbosity"]:
            self.stdout.write(f"{deleted} jobs were deleted.")
