"""What the lab's tests share."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Run:
    """What one run of the command printed, returned and wrote."""

    code: int
    output: str
    evidence: dict[str, Any]

    @property
    def stable(self) -> dict[str, Any]:
        return {key: value for key, value in self.evidence.items() if key != "volatile"}


def lab_command(*flags: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), "pgqueue_lab", *flags]


def dsn(url: str, name: str | None = None) -> str:
    """Return the libpq form of a DATABASE_URL, perhaps of another database on its server."""
    parts = urlsplit(url)
    return parts._replace(scheme="postgresql", path=f"/{name}" if name else parts.path).geturl()


def exists(url: str, name: str) -> bool:
    """Whether the server has a database of this name."""
    with psycopg.connect(dsn(url, "postgres"), autocommit=True) as session:
        return bool(session.execute("SELECT FROM pg_database WHERE datname = %s", [name]).rowcount)
