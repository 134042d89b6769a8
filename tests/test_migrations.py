"""Tables: what plain SQL may do, what constraints refuse, and migrations in every kind of project."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module, reload
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader

ROOT = Path(__file__).resolve().parent.parent
TABLES = {f"django_pgqueue_{name}" for name in ("effect", "failure", "job", "rejection", "worker")}


# Migrations in this process


def migration_names() -> list[str]:
    folder = ROOT / "django_pgqueue" / "migrations"
    return sorted(path.stem for path in folder.glob("[0-9]*.py"))


def test_every_migration_imports_without_a_warning() -> None:
    """Report 121."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in migration_names():
            reload(import_module(f"django_pgqueue.migrations.{name}"))
        state = MigrationLoader(None).project_state(("django_pgqueue", migration_names()[-1]))
        assert {model for app, model in state.models if app == "django_pgqueue"} >= {
            "job",
            "failure",
            "effect",
        }


def test_every_migration_can_be_reversed_and_names_no_schema() -> None:
    """Report 118."""
    loader = MigrationLoader(None)
    for name in migration_names():
        migration = loader.get_migration("django_pgqueue", name)
        assert all(operation.reversible for operation in migration.operations), name
        assert "public." not in (ROOT / "django_pgqueue" / "migrations" / f"{name}.py").read_text()


def test_no_migration_depends_on_another_app() -> None:
    loader = MigrationLoader(None)
    for name in migration_names():
        migration = loader.get_migration("django_pgqueue", name)
        assert {app for app, _ in migration.dependencies} <= {"django_pgqueue"}


# Migrations in projects of their own: another process, other settings, empty databases


class Project:
    """A copy of the test project's settings with changes, on a database of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def run(self, code: str, *, before: str = "", url: str | None = None, **settings: str) -> str:
        """Run code after django.setup(); `before` stands before it. Return the last line of its output."""
        lines = [
            "from testproject.settings import *",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        (self.folder / "own_settings.py").write_text("\n".join(lines))
        prelude = "import django\nfrom django.core.management import call_command\n"
        done = subprocess.run(
            [sys.executable, "-c", f"{before}\n{prelude}django.setup()\n{code}"],
            env={
                **os.environ,
                "DATABASE_URL": url or self.url,
                "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}",
                "DJANGO_SETTINGS_MODULE": "own_settings",
            },
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip().rpartition("\n")[2]

    def add(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)


def url_with(url: str, *, database: str, user: str = "", **options: str) -> str:
    parts = urlsplit(url)
    if user:
        parts = parts._replace(netloc=f"{quote(user)}@{parts.netloc.rpartition('@')[2]}")
    query = {**dict(parse_qsl(parts.query)), **options}
    return parts._replace(path=f"/{database}", query=urlencode(query, quote_via=quote)).geturl()


class Server:
    """The server of the tests, and two databases on it for the projects of this module."""

    def __init__(self, params: dict[str, object]) -> None:
        self.params = params
        self.name = f"pgqueue_migrations_{os.getpid()}"
        self.databases = (self.name, f"{self.name}_other")

    def execute(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(**{**self.params, "dbname": database}, autocommit=True) as session:
            for statement in statements:
                session.execute(statement)


@pytest.fixture(scope="module")
def server(django_db_setup: None) -> Iterator[Server]:
    params = connection.get_connection_params()
    server = Server({key: value for key, value in params.items() if key not in ("cursor_factory", "context")})
    server.execute(*(f"CREATE DATABASE {name}" for name in server.databases))
    try:
        yield server
    finally:
        server.execute(*(f"DROP DATABASE {name} WITH (FORCE)" for name in server.databases))


@pytest.fixture
def project(server: Server, tmp_path: Path) -> Project:
    """Return a project on two empty databases."""
    for name in server.databases:
        server.execute(
            "DROP SCHEMA IF EXISTS public, app_queue CASCADE", "CREATE SCHEMA public", database=name
        )
    return Project(tmp_path, url_with(os.environ["DATABASE_URL"], database=server.name))


SHOW = """
import json
from django.db import connections
def tables(alias):
    with connections[alias].cursor() as cursor:
        names = connections[alias].introspection.table_names(cursor)
    return sorted(name for name in names if name.startswith("django_pgqueue_"))
"""


def test_migrating_another_database_both_ways_twice_touches_only_that_one(
    project: Project,
) -> None:
    """Report 116."""
    code = SHOW + (
        "seen = []\n"
        "for _ in range(2):\n"
        "    call_command('migrate', database='other', verbosity=0)\n"
        "    call_command('migrate', database='other', verbosity=0)\n"
        "    seen.append([tables('default'), tables('other')])\n"
        "    call_command('migrate', 'django_pgqueue', 'zero', database='other', verbosity=0)\n"
        "    call_command('migrate', 'django_pgqueue', 'zero', database='other', verbosity=0)\n"
        "    seen.append([tables('default'), tables('other')])\n"
        "print(json.dumps(seen))\n"
    )
    there = [[], sorted(TABLES)]
    assert json.loads(project.run(code)) == [there, [[], []], there, [[], []]]


def test_each_migration_goes_back_and_forth_with_rows_in_the_tables(project: Project) -> None:
    code = SHOW + (
        "from django_pgqueue.models import Job\n"
        "call_command('migrate', verbosity=0)\n"
        "Job.objects.create(task='x')\n"
        f"for name in {list(reversed(migration_names()))[1:]!r} + {migration_names()!r}:\n"
        "    call_command('migrate', 'django_pgqueue', name, verbosity=0)\n"
        "with connections['default'].cursor() as cursor:\n"
        "    cursor.execute(\"SELECT reloptions FROM pg_class WHERE relname = 'django_pgqueue_job'\")\n"
        "    print(json.dumps([Job.objects.count(), tables('default'), len(cursor.fetchone()[0])]))\n"
    )
    assert json.loads(project.run(code)) == [1, sorted(TABLES), 5]


ROUTER = """
class Router:
    def db_for_read(self, model, **hints):
        return "other" if model._meta.app_label == "django_pgqueue" else None
    db_for_write = db_for_read
    def allow_migrate(self, db, app_label, **hints):
        return (db == "other") == (app_label == "django_pgqueue")
"""

USE = """
from django.core.management import call_command
from django.db import connections, transaction
from django_pgqueue.models import Job
from own_tasks import shout
result = shout.using(unique_key="k").enqueue("hello")
assert shout.using(unique_key="k").enqueue("again").id == result.id
call_command("runworker", batch=True, verbosity=0)
result.refresh()
assert result.return_value == "HELLO", result
"""

OWN_TASKS = """
from django_pgqueue import task

@task
def shout(text):
    return text.upper()
"""


def test_a_router_may_send_the_whole_app_to_another_database(project: Project) -> None:
    """Reports 116 and 117."""
    project.add("own_router.py", ROUTER)
    project.add("own_tasks.py", OWN_TASKS)
    code = SHOW + (
        "call_command('migrate', verbosity=0)\n"
        "call_command('migrate', database='other', verbosity=0)\n"
        f"{USE}\n"
        "call_command('check', verbosity=0)\n"
        "print(json.dumps([tables('default'), tables('other'), Job.objects.using('other').count()]))\n"
    )
    found = json.loads(project.run(code, DATABASE_ROUTERS="['own_router.Router']"))
    assert found == [[], sorted(TABLES), 1]


def test_the_queue_may_live_in_a_schema_of_its_own_without_access_to_public(
    project: Project, server: Server
) -> None:
    """Report 118."""
    role = f"pgqueue_role_{os.getpid()}"
    url = url_with(project.url, database=server.name, user=role, options="-c search_path=app_queue")
    project.add("own_tasks.py", OWN_TASKS)
    code = SHOW + (
        "call_command('migrate', verbosity=0)\n"
        f"{USE}\n"
        "with connections['default'].cursor() as cursor:\n"
        "    cursor.execute(\"SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'django_pgqueue_%'\")\n"
        "    schemas = [row[0] for row in cursor.fetchall()]\n"
        "    cursor.execute(\"SELECT has_schema_privilege('public', 'USAGE')\")\n"
        "    print(json.dumps([schemas, cursor.fetchone()[0], tables('default')]))\n"
        "call_command('migrate', 'django_pgqueue', 'zero', verbosity=0)\n"
    )
    server.execute(f"CREATE ROLE {role} LOGIN")
    server.execute(
        f"REVOKE ALL ON SCHEMA public FROM PUBLIC, {role}",
        f"CREATE SCHEMA app_queue AUTHORIZATION {role}",
        database=server.name,
    )
    try:
        assert json.loads(project.run(code, url=url)) == [["app_queue"], False, sorted(TABLES)]
    finally:
        server.execute(f"DROP OWNED BY {role} CASCADE", database=server.name)
        server.execute(f"DROP ROLE {role}")


UUID_FIELD = """
from django.db import models

class UuidAutoField(models.AutoField):
    def db_type(self, connection):
        return "uuid"
    def rel_db_type(self, connection):
        return "uuid"
"""


@pytest.mark.parametrize(
    "field",
    [
        "django.db.models.AutoField",
        "django.db.models.SmallAutoField",
        "django.db.models.BigAutoField",
        "own_fields.UuidAutoField",
    ],
)
def test_no_default_auto_field_makes_a_migration(project: Project, field: str) -> None:
    """Report 120."""
    project.add("own_fields.py", UUID_FIELD)
    code = (
        "call_command('makemigrations', 'django_pgqueue', check_changes=True, dry_run=True, verbosity=0)\n"
        "from django_pgqueue.models import Job\n"
        "print(type(Job._meta.pk).__name__)\n"
    )
    assert project.run(code, DEFAULT_AUTO_FIELD=repr(field)) == "BigAutoField"


NO_QUERY = """
from django.db.backends.base.base import BaseDatabaseWrapper
def refuse(self, *args, **kwargs):
    raise AssertionError("a connection was opened at import")
BaseDatabaseWrapper.connect = refuse
"""

IMPORT_ALL = """
import importlib, pkgutil, django_pgqueue
names = [info.name for info in pkgutil.walk_packages(django_pgqueue.__path__, "django_pgqueue.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
"""


def test_importing_everything_and_the_checks_make_no_query(project: Project) -> None:
    """Report 104."""
    code = f"{IMPORT_ALL}\nimport testproject.shop.tasks\ncall_command('check', verbosity=0)\nprint(len(names) > 40)"
    assert project.run(code, before=NO_QUERY) == "True"


def test_commands_work_on_a_fresh_database_with_tasks_imported(project: Project) -> None:
    """Report 104."""
    project.add("own_tasks.py", OWN_TASKS)
    code = (
        "import own_tasks, testproject.shop.tasks\n"
        "call_command('check', verbosity=0)\n"
        "call_command('makemigrations', check_changes=True, dry_run=True, verbosity=0)\n"
        "call_command('collectstatic', interactive=False, dry_run=True, verbosity=0)\n"
        "call_command('sqlmigrate', 'django_pgqueue', '0002', no_color=True)\n"
        "call_command('migrate', verbosity=0)\n"
        "call_command('migrate', check_unapplied=True, verbosity=0)\n"
        "call_command('check', databases=['default', 'other'], verbosity=0)\n"
        "print('done')\n"
    )
    assert project.run(code, STATIC_ROOT="'static-root'") == "done"


def test_commands_that_need_no_database_work_without_one(project: Project) -> None:
    """Report 104."""
    code = (
        "import warnings\n"
        "import testproject.shop.tasks\n"
        "call_command('check', verbosity=0)\n"
        "with warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')  # Django says that it could not look at the history\n"
        "    call_command('makemigrations', check_changes=True, dry_run=True, verbosity=0)\n"
        "call_command('collectstatic', interactive=False, dry_run=True, verbosity=0)\n"
        "print('done')\n"
    )
    nowhere = "postgres://nobody@/nothing?host=/nonexistent/folder&port=1"
    assert project.run(code, url=nowhere, STATIC_ROOT="'static-root'") == "done"


def test_a_worker_without_its_tables_says_what_to_do(project: Project) -> None:
    """Report 104."""
    code = (
        "from django.core.management import CommandError\n"
        "try:\n"
        "    call_command('runworker', batch=True, verbosity=0)\n"
        "except CommandError as error:\n"
        "    print(error)\n"
    )
    said = project.run(code)
    assert "run manage.py migrate" in said
