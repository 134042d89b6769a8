"""How a job tells the lab where it is, and waits for the lab: on sessions of its own, beside its transaction."""

from __future__ import annotations

from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from typing import Any

import psycopg

from .settings import GIVEN
from .waiting import until

GATE_OPENS_WITHIN = timedelta(minutes=2)


def tell(job_id: int, generation: int, point: str) -> None:
    """Say that the job has reached a point; committed at once, whatever its own transaction does."""
    with _session() as session:
        session.execute("INSERT INTO lab_marks VALUES (%s, %s, %s)", [job_id, generation, point])


def wait_for_gate(name: str) -> None:
    """Return once the lab has opened the gate, whatever happens to the sessions by which it is looked at."""
    with ExitStack() as sessions:
        held: list[psycopg.Connection[Any]] = []

        def is_open() -> bool:
            with suppress(psycopg.OperationalError):
                if not held or held[-1].closed:
                    held.append(sessions.enter_context(closing(_session())))
                return bool(held[-1].execute("SELECT FROM lab_gates WHERE name = %s", [name]).rowcount)
            return False

        until(is_open, f"the gate {name!r} opens", within=GATE_OPENS_WITHIN)


def send_mail(key: str | None) -> str:
    """Stand in for a mail service: it takes every mail, and drops one whose key it has seen."""
    with _session() as session:
        session.execute(
            "INSERT INTO lab_mails (key) VALUES (COALESCE(%s, gen_random_uuid()::text)) "
            "ON CONFLICT (key) DO UPDATE SET sent = lab_mails.sent + 1",
            [key],
        )
    return "accepted"


def _session() -> psycopg.Connection[Any]:
    return psycopg.connect(
        **GIVEN["facts"], application_name="pgqueue-lab-facts", autocommit=True, prepare_threshold=None
    )
