"""Counters of rejections."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY

from django_pgqueue import leases, outcomes
from django_pgqueue.models import Job


def count(action: str, verdict: str) -> float:
    return REGISTRY.get_sample_value("pgqueue_rejections_total", {"action": action, "verdict": verdict}) or 0


@pytest.mark.django_db
def test_a_refused_completion_is_counted_and_an_accepted_one_is_not():
    Job.objects.create(task="shop.tasks.send")
    (first,) = leases.claim(worker="A")
    Job.objects.update(lease_until="2020-01-01T00:00:00Z")
    (second,) = leases.reclaim(worker="B")
    before = count("complete", "superseded")
    assert outcomes.complete(first) == "superseded"
    assert count("complete", "superseded") == before + 1
    assert outcomes.complete(second) == "accepted"
    assert count("complete", "accepted") == 0
