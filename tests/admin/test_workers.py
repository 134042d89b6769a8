"""The list of workers."""

import re
from datetime import timedelta

from django.test import Client
from django.utils import timezone

from django_pgqueue.models import Worker
from tests.admin.reading import text_of

BASE = "/admin/django_pgqueue/"


def test_workers_are_alive_stale_or_draining(boss: Client, db: None) -> None:
    old = timezone.now() - timedelta(minutes=10)
    Worker.objects.create(id="fresh", host="h", pid=12345, concurrency=4, running=3)
    Worker.objects.create(id="gone", host="h", pid=1, concurrency=4, seen_at=old, started_at=old)
    Worker.objects.create(id="leaving", host="h", pid=1, concurrency=4, draining=True, queues=["mail"])
    page = text_of(boss.get(f"{BASE}worker/"))
    assert re.search(r"fresh alive .*? h 12345 every queue 3 of 4", page)
    assert re.search(r"gone stale 10 min \d+ s ago", page)
    assert re.search(r"leaving draining .*? mail 0 of 4", page)
