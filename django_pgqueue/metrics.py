"""Counters for Prometheus, if `prometheus_client` is installed (the extra `metrics`)."""

from __future__ import annotations

from typing import Any

from .signals import completion_rejected

try:
    from prometheus_client import Counter
except ImportError:
    _rejections = None
else:
    _rejections = Counter(
        "pgqueue_rejections", "Writes of workers that no longer owned their job.", ["action", "verdict"]
    )


def install() -> None:
    """Count from now on, in this process; whatever exports the default registry exports these."""
    if _rejections is not None:
        completion_rejected.connect(_count, dispatch_uid="django_pgqueue.metrics")


def _count(*, action: str, verdict: str, **kwargs: Any) -> None:
    if _rejections is not None:
        _rejections.labels(action=str(action), verdict=str(verdict)).inc()
