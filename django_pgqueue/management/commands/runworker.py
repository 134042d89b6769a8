"""`manage.py runworker`: run a worker until it is told to stop."""

from __future__ import annotations

import gc
import logging
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ...worker.worker import Worker
from ..reloading import run_with_reload
from ..worker_options import add_worker_arguments, unknown_queues, worker_settings

LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.INFO, 3: logging.DEBUG}


class Command(BaseCommand):
    """Exit codes: 0 stopped gracefully, 1 broke, 2 wrong usage, 128 + signal number left at once."""

    help = "Runs a worker: it claims jobs, runs them and ends them, until SIGTERM or SIGINT."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options of a worker."""
        add_worker_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run a worker; with --reload again and again."""
        if options["reload"]:
            run_with_reload(lambda: self.make_worker(options))
            return
        worker = self.make_worker(options)
        if getattr(self, "_called_from_command_line", False):
            gc.freeze()  # what is loaded by now stays: no collection need walk through it between jobs
        code = worker.run()
        if worker.fatal:
            raise CommandError(worker.fatal, returncode=code)
        if worker.has_stragglers and getattr(self, "_called_from_command_line", False):
            # A job that was given back still runs in a thread, which the interpreter's exit might wait for.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(code)
        if code:
            raise CommandError("the worker broke; see its log", returncode=code)

    def make_worker(self, options: dict[str, Any]) -> Worker:
        """Return a worker made of the options, and say what it will do."""
        settings = worker_settings(options)
        _show_log(options["verbosity"])
        for name in unknown_queues(settings):
            logging.getLogger("django_pgqueue").warning(
                "The queue %r is not among QUEUES of TASKS[%r]: nothing can be enqueued to it there",
                name,
                settings.backend,
            )
        queues = ", ".join(settings.queues) if settings.queues is not None else "every queue"
        if settings.excluded:
            queues += f" but {', '.join(sorted(settings.excluded))}"
        if options["verbosity"]:
            self.stdout.write(
                f"Worker {settings.id}: {queues}; {settings.concurrency} at a time; "
                f"lease {settings.lease.total_seconds():g} s; database {settings.using!r}"
            )
            self.stdout.flush()
        return Worker(settings)


def _show_log(verbosity: int) -> None:
    """Give the queue's logger a handler if the project has configured none."""
    logger = logging.getLogger("django_pgqueue")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(LEVELS.get(verbosity, logging.DEBUG))
