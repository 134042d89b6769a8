"""Django settings that the Django queues share: nothing but the database; DEBUG off, Django's own LOGGING."""

import os

from psycopg.conninfo import conninfo_to_dict

_given = conninfo_to_dict(os.environ["DATABASE_URL"])

SECRET_KEY = "only-for-benchmarks"
DEBUG = False
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _given.pop("dbname"),
        **{key.upper(): _given.pop(key) for key in ("host", "port", "user", "password") if key in _given},
        "OPTIONS": _given,
        # A persistent connection, as any server that enqueues more than now and then has it.
        "CONN_MAX_AGE": None,
    }
}


def migrate():
    """Make the tables of the installed apps."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
