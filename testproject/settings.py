"""Settings of the test project, on the database of DATABASE_URL; without it, on an embedded PostgreSQL."""

import os
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import django
import environ

from testproject import embedded

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
environ.Env.read_env(BASE_DIR / ".env")

SHOP_FILES = Path(env("SHOP_FILES", default=str(BASE_DIR / ".shop")))

DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env("SECRET_KEY", default="only-for-the-test-project")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]", "testserver"])

# Child processes read the address from here, so that all of them use one database.
os.environ["DATABASE_URL"] = embedded.database_url(BASE_DIR / ".pgdata", env("DATABASE_URL", default=""))


def database(name: str | None = None) -> dict[str, object]:
    """Return the settings of a database on the server of DATABASE_URL."""
    config = env.db_url("DATABASE_URL")
    options = config.setdefault("OPTIONS", {})
    # A socket's folder stands in the query of the address; dbshell and others look for it in HOST.
    config["HOST"] = options.pop("host", config["HOST"])
    config["PORT"] = options.pop("port", config["PORT"])
    return {**config, "NAME": name or config["NAME"]}


DATABASES = {"default": database()}
DATABASES["other"] = database(f"{DATABASES['default']['NAME']}_other")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    *(["django_tasks"] if find_spec("django_tasks") and django.VERSION < (6, 0) else []),
    "django_pgqueue",
    "testproject.shop",
]

TASKS = {
    "default": {
        "BACKEND": "django_pgqueue.backend.PgQueueBackend",
        "QUEUES": ["default", "receipts", "reports"],
        "OPTIONS": {"LEASE": timedelta(seconds=30), "MAX_ATTEMPTS": 5},
    },
}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

ROOT_URLCONF = "testproject.urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True

OUTBOX = "testproject.shop.outbox.OutboxBackend"
if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": OUTBOX, "OPTIONS": {"file_path": SHOP_FILES / "mails"}}}
else:
    EMAIL_BACKEND = OUTBOX
    EMAIL_FILE_PATH = SHOP_FILES / "mails"
