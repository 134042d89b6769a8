"""The options of `runworker`, and the settings that they make."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser
from django.db import connections

from .. import bounds
from ..conf import Options, backend_aliases, queues_of, raw_options, read_options
from ..database import queue_database
from ..worker.settings import PoolKind, WorkerSettings, worker_id
from .arguments import USAGE, queue_names, seconds, whole_number


def add_worker_arguments(parser: CommandParser) -> None:
    """Add the options; their values are checked in `worker_settings`, to answer nonsense with one line."""
    add = parser.add_argument
    add("--queue-name", default="*", metavar="A,B", help="Queues to work on, or * for every queue (default).")
    add("--exclude-queues", default="", metavar="A,B", help="Queues to leave alone.")
    slots = bounds.CONCURRENCY.default
    add("--concurrency", default=slots, metavar="N", help=f"Jobs run at the same time (default: {slots}).")
    pools = "|".join(PoolKind)
    add("--pool", default=PoolKind.THREADS, metavar=pools, help="What runs the jobs (default: threads).")
    add("--lease", metavar="SECONDS", help="Length of a lease (default: the LEASE option).")
    add("--interval", metavar="SECONDS", help="Longest pause between polls (default: POLL_INTERVAL).")
    add("--batch", action="store_true", help="Run what is due, then exit.")
    add("--max-tasks", metavar="N", help="Exit after having started N jobs.")
    add("--worker-id", metavar="NAME", help="A name for this worker; a random suffix is added.")
    add("--backend", metavar="ALIAS", help="The backend in TASKS whose options hold.")
    add("--no-listen", action="store_true", help="Poll only: for a transaction-mode pooler.")
    drain = bounds.SHUTDOWN_TIMEOUT.default.total_seconds()
    add("--shutdown-timeout", default=drain, metavar="SECONDS", help=f"Longest drain (default: {drain:g}).")
    add("--reload", action="store_true", help="Restart when code changes, after running jobs have ended.")
    add("--no-reload", action="store_false", dest="reload", help="Do not (default).")


def worker_settings(options: dict[str, Any]) -> WorkerSettings:
    """Return the worker's settings. Raises CommandError with exit code 2 for a value out of its domain."""
    backend, own, using = backend_options(options["backend"])
    lease = own.lease
    if options["lease"] is not None:
        lease = seconds("--lease", options["lease"], bounds.LEASE)
    interval = own.poll_interval
    if options["interval"] is not None:
        interval = seconds("--interval", options["interval"], bounds.POLL_INTERVAL)
    max_tasks = None
    if options["max_tasks"] is not None:
        max_tasks = whole_number("--max-tasks", options["max_tasks"], bounds.MAX_TASKS)
    queues, excluded = _queues(backend, using, options)
    return WorkerSettings(
        using=using,
        options=own,
        backend=backend,
        id=worker_id(_name(options["worker_id"])),
        queues=queues,
        excluded=excluded,
        concurrency=whole_number("--concurrency", options["concurrency"], bounds.CONCURRENCY),
        pool=_pool(options["pool"]),
        lease=lease,
        interval=interval,
        shutdown_timeout=seconds("--shutdown-timeout", options["shutdown_timeout"], bounds.SHUTDOWN_TIMEOUT),
        batch=options["batch"],
        listen=own.listen and not options["no_listen"],
        max_tasks=max_tasks,
    )


def unknown_queues(settings: WorkerSettings) -> list[str]:
    """Return the given queues that the backend does not list: a retired queue to be emptied, or a mistake."""
    known = queues_of(settings.backend)
    return [name for name in settings.queues or () if known and name not in known]


def backend_options(given: str | None) -> tuple[str, Options, str]:
    """Return the backend's alias, its options and the alias of its database. Raises CommandError (exit code 2)."""
    backend = _backend(given)
    own = _options_of(backend)
    using = queue_database(own.database)
    if connections[using].vendor != "postgresql":
        raise CommandError(f"DATABASES[{using!r}] is not PostgreSQL", returncode=USAGE)
    return backend, own, using


def _pool(given: str) -> PoolKind:
    try:
        return PoolKind(given)
    except ValueError:
        raise CommandError(f"--pool must be threads or processes, not {given!r}", returncode=USAGE) from None


def _backend(given: str | None) -> str:
    aliases = backend_aliases()
    known = ", ".join(aliases) or "none"
    if given is not None and given not in aliases:
        raise CommandError(
            f"--backend must be an alias in TASKS with this queue's backend ({known}), not {given!r}",
            returncode=USAGE,
        )
    if given is not None:
        return given
    if not aliases:
        raise CommandError("no backend in TASKS is django_pgqueue.backend.PgQueueBackend", returncode=USAGE)
    if len(aliases) > 1 and "default" not in aliases:
        raise CommandError(
            f"--backend is needed: TASKS has several of this queue's backends ({known})", returncode=USAGE
        )
    return "default" if "default" in aliases else aliases[0]


def _options_of(backend: str) -> Options:
    try:
        return read_options(backend, raw_options(backend))
    except ImproperlyConfigured as error:
        raise CommandError(str(error), returncode=USAGE) from None


def _queues(backend: str, using: str, options: dict[str, Any]) -> tuple[list[str] | None, frozenset[str]]:
    names = queue_names("--queue-name", options["queue_name"])
    excluded: set[str] = set()
    if options["exclude_queues"]:
        listed = queue_names("--exclude-queues", options["exclude_queues"])
        if listed is None:
            raise CommandError("--exclude-queues must name queues, not *", returncode=USAGE)
        excluded.update(listed)
    if names is None:
        excluded |= _queues_of_others(backend, using)
    elif not set(names) - excluded:
        raise CommandError("--exclude-queues leaves no queue to work on", returncode=USAGE)
    return names, frozenset(excluded)


def _queues_of_others(backend: str, using: str) -> set[str]:
    """Return the queues that only other backends on the same database list: their jobs have other options."""
    others: set[str] = set()
    for alias in backend_aliases():
        if alias != backend and queue_database(_options_of(alias).database) == using:
            others |= queues_of(alias)
    return others - queues_of(backend)


def _name(given: str | None) -> str | None:
    if given is not None and (not given.strip() or len(given) > 100 or not given.isprintable()):
        raise CommandError(
            f"--worker-id must be 1 to 100 printable characters, not {given[:100]!r}", returncode=USAGE
        )
    return given
