"""Settings of the worker processes under test: the shop's databases and tasks, without the shop.

PROCESS_SETTINGS, a JSON object, changes what a test is about: `database` (of DATABASES), `options` (of its
OPTIONS), `tasks` (OPTIONS of TASKS; durations in seconds), `isolation` (name of a psycopg IsolationLevel).
"""

import json
import os
from datetime import timedelta

import django

from testproject.settings import *  # noqa: F403
from testproject.settings import DATABASES, TASKS

CHANGES = json.loads(os.environ.get("PROCESS_SETTINGS", "{}"))

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    *(["django_tasks"] if django.VERSION < (6, 0) else []),
    "django_pgqueue",
    "tests.processes.app.ProcessesConfig",
]
DEBUG = False  # or Django logs every task to the console
ROOT_URLCONF = None
MIDDLEWARE = []
TEMPLATES = []

for _config in DATABASES.values():
    _config.update(CHANGES.get("database", {}))
    _config.setdefault("OPTIONS", {}).update(CHANGES.get("options", {}))
    if "isolation" in CHANGES:
        from psycopg import IsolationLevel

        _config["OPTIONS"]["isolation_level"] = IsolationLevel[CHANGES["isolation"]]

TASKS["default"]["QUEUES"] = []
TASKS["default"]["OPTIONS"].update(
    {
        name: timedelta(seconds=value) if isinstance(value, int | float) and name != "MAX_ATTEMPTS" else value
        for name, value in CHANGES.get("tasks", {}).items()
    }
)
