"""Points in a worker's statements where a trap may hold its commit; a test checks that the statements have them."""

from __future__ import annotations

CLAIM = "SET state = 'running', generation = j.generation + 1"
END = "SET state = d.state, lease_until = NULL"
EFFECT = 'INSERT INTO "django_pgqueue_effect"'
