"""The evidence of one run as one JSON document; what differs from run to run stands apart in `volatile`."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django
import psycopg

from .. import __version__
from .recorder import Log
from .stage import LEASE_SECONDS, Place

FORMAT = 1
SCHEMA = Path(__file__).with_name("evidence.schema.json")
_SERVER_SETTINGS = (
    "server_version",
    "synchronous_commit",
    "fsync",
    "default_transaction_isolation",
    "max_connections",
    "shared_buffers",
    "idle_in_transaction_session_timeout",
)


def surroundings(place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the environment and the server's settings."""
    with place.target.connect() as session:
        settings = {
            name: session.execute("SELECT current_setting(%s)", [name]).fetchone()[0]  # type: ignore[index]
            for name in _SERVER_SETTINGS
        }
    environment = {
        "postgresql": settings.pop("server_version"),
        "django_pgqueue": __version__,
        "django": django.get_version(),
        "psycopg": psycopg.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
    }
    return environment, settings


def document(
    logs: Sequence[Log],
    *,
    place: Place,
    seed: int,
    environment: dict[str, Any],
    server_settings: dict[str, Any],
    began_at: datetime,
    interrupted: bool = False,
) -> dict[str, Any]:
    """Return everything that was done and seen."""
    return {
        "format": FORMAT,
        "verdict": verdict(logs, interrupted=interrupted),
        "interrupted": interrupted,
        "environment": environment,
        "settings": {
            "seed": seed,
            "lease_seconds": LEASE_SECONDS,
            "listen": place.listen,
            "pooled": place.pooled,
            "embedded": place.server is not None,
            "server": server_settings,
        },
        "scenarios": [
            {
                "name": log.name,
                "title": log.title,
                "group": log.group,
                "verdict": log.verdict,
                **({"reason": log.reason} if log.reason else {}),
                "steps": log.steps,
            }
            for log in logs
        ],
        "volatile": {
            "began_at": began_at.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - began_at).total_seconds(), 1),
            "machine": platform.machine(),
            "kernel": platform.release(),
            "database": place.target.name,
            "scenarios": {
                log.name: {
                    "seconds": round(log.seconds, 2),
                    "step_seconds": log.step_seconds,
                    "figures": log.figures,
                    "logs": log.logs,
                }
                for log in logs
            },
        },
    }


def verdict(logs: Sequence[Log], *, interrupted: bool = False) -> str:
    """Return `passed` only if nothing failed, something passed, and the run came to its end."""
    failed = interrupted or any(log.verdict == "failed" for log in logs)
    return "passed" if not failed and any(log.verdict == "passed" for log in logs) else "failed"


def write(path: Path, evidence: dict[str, Any]) -> None:
    """Write the document so that two of them can be compared line by line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(evidence, indent=1, ensure_ascii=False, default=str) + "\n")
