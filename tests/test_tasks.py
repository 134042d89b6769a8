"""The decorator and its tasks: options, `using`, pickling, and other backends."""

import copy
import os
import pickle
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import django
import pytest
from django.core.management import call_command

import django_pgqueue
from django_pgqueue import Backoff, PgTask, task
from django_pgqueue.compat import InvalidTask, Task, TaskResultStatus, task_backends
from django_pgqueue.models import Job

if django.VERSION >= (6, 0):
    from django.tasks import task as djangos_task

    DJANGOS = "django.tasks.backends"
else:
    from django_tasks import task as djangos_task

    DJANGOS = "django_tasks.backends"

ROOT = Path(__file__).resolve().parent.parent
TOKYO = timezone(timedelta(hours=9))
ANCHORAGE = timezone(timedelta(hours=-9))


def nothing(*args: object, **kwargs: object) -> None:
    """Do nothing."""


def with_context(context: object) -> None:
    """Take a context."""


@task(max_attempts=7, no_retry=(KeyError,), retry=Backoff(base=timedelta(seconds=9)))
def add(left: int, right: int) -> int:
    return left + right


@task
def bare() -> None:
    """Have no options."""


@task()
async def in_future() -> str:
    return "async"


def test_the_decorator_works_bare_and_called() -> None:
    assert isinstance(bare, PgTask) and isinstance(add, PgTask) and isinstance(in_future, PgTask)
    assert (bare.max_attempts, add.max_attempts) == (None, 7)
    assert add.call(1, 2) == 3
    assert in_future.call() == "async"


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 100, "queue_name": "receipts"},
        {"priority": -100},
        {"max_attempts": 1},
        {"max_attempts": 1_000_000},
        {"timeout": timedelta(seconds=0.1), "lease": timedelta(days=1)},
        {"fencing": "strict"},
        {"fencing": "token"},
        {"transactional": True},
        {"retry": lambda attempt, error: None},
        {"no_retry": (ValueError, OSError)},
    ],
)
def test_every_option_in_its_domain_is_taken(options: dict[str, object]) -> None:
    made = task(**options)(nothing)
    assert {name: getattr(made, name) for name in options} == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 101}, "priority"),
        ({"priority": -101}, "priority"),
        ({"priority": 10**30}, "priority"),
        ({"priority": True}, "priority must be a whole number, not True"),
        ({"priority": 1.5}, "priority must be a whole number, not 1.5"),
        ({"priority": "1"}, "priority must be a whole number, not '1'"),
        ({"priority": float("nan")}, "priority must be a whole number, not nan"),
        ({"queue_name": "elsewhere"}, "elsewhere"),
        ({"queue_name": ""}, "queue_name must be a non-empty string"),
        ({"queue_name": ["default"]}, "queue_name must be a non-empty string"),
        ({"queue_name": 5}, "queue_name must be a non-empty string, not 5"),
        ({"max_attempts": 0}, "max_attempts must be between 1 and 1000000, not 0"),
        ({"max_attempts": -1}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": 2.0}, "max_attempts"),
        ({"max_attempts": 10**12}, "max_attempts"),
        ({"timeout": 30}, "timeout must be a timedelta"),
        ({"timeout": timedelta(0)}, "timeout must be at least 0.1 seconds"),
        ({"lease": timedelta(seconds=-5)}, "lease must be at least 0.1 seconds"),
        ({"lease": timedelta.max}, "lease must be a timedelta of at most"),
        ({"fencing": "none"}, "fencing must be one of token, strict, not 'none'"),
        ({"retry": 5}, "retry must be a Backoff or a callable"),
        ({"no_retry": ("ValueError",)}, "no_retry must be a tuple of exception classes"),
        ({"no_retry": ValueError}, "no_retry must be a tuple of exception classes"),
        ({"unique_key": ""}, "unique_key must be a non-empty string"),
    ],
)
def test_an_option_out_of_its_domain_is_refused_and_named(options: dict[str, object], message: str) -> None:
    """Reports 43, 131 and 159."""
    with pytest.raises(InvalidTask, match=message):
        task(**options)(nothing)


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="@task has no option colour, retries"):
        task(retries=3, colour="red")
    with pytest.raises(TypeError, match="run_after"):
        task(run_after=datetime.now(UTC))


def test_a_function_that_a_worker_could_not_find_is_refused() -> None:
    with pytest.raises(InvalidTask, match="module level"):
        task(lambda: None)
    with pytest.raises(InvalidTask, match="context"):
        task(takes_context=True)(nothing)
    assert task(takes_context=True)(with_context).takes_context


def test_a_task_path_that_the_column_cannot_hold_is_refused() -> None:
    """Report 131."""

    def long_name() -> None:
        """Be renamed."""

    long_name.__qualname__ = "x" * 600
    with pytest.raises(InvalidTask, match="the task's path must be at most 500"):
        task(long_name)


# using()


def test_using_keeps_every_other_option() -> None:
    changed = add.using(priority=5, queue_name="receipts", max_attempts=2, unique_key="k")
    assert (changed.priority, changed.queue_name, changed.max_attempts, changed.unique_key) == (
        5,
        "receipts",
        2,
        "k",
    )
    assert changed.no_retry == (KeyError,) and changed.retry == add.retry
    again = changed.using(run_after=timedelta(hours=1))
    assert (again.priority, again.max_attempts, again.unique_key) == (5, 2, "k")
    assert add.priority == 0 and add.unique_key is None


def test_using_takes_an_instant_or_a_timedelta_and_the_last_one_holds() -> None:
    at = datetime(2030, 1, 1, tzinfo=TOKYO)
    assert (add.using(run_after=at).run_after, add.using(run_after=at).delay) == (at, None)
    later = add.using(run_after=at).using(run_after=timedelta(minutes=5))
    assert (later.run_after, later.delay) == (None, timedelta(minutes=5))
    assert later.using(run_after=at).delay is None


@pytest.mark.parametrize(
    ("run_after", "message"),
    [
        (date(2030, 1, 1), "a day is not an instant"),
        (datetime(2030, 1, 1), "must be an aware datetime"),
        ("2030-01-01", "must be an aware datetime or a timedelta, not '2030-01-01'"),
        (3600, "must be an aware datetime or a timedelta, not 3600"),
        (timedelta.max, "delay must be a timedelta of at most 36500 days"),
    ],
)
def test_a_run_after_that_is_no_instant_is_refused(run_after: object, message: str) -> None:
    with pytest.raises(InvalidTask, match=message):
        add.using(run_after=run_after)


@pytest.mark.parametrize(
    "run_after",
    [datetime.max.replace(tzinfo=ANCHORAGE), datetime.min.replace(tzinfo=TOKYO)],
    ids=["after 9999 in UTC", "before 1 in UTC"],
)
def test_an_instant_that_no_worker_could_read_back_is_refused(run_after: datetime) -> None:
    with pytest.raises(InvalidTask, match="years 1 to 9999"):
        add.using(run_after=run_after).enqueue(1, 2)


# Other ways to a task


@pytest.mark.skipif((6, 0) <= django.VERSION < (6, 1), reason="Django 6.0's @task takes no further options")
def test_djangos_own_decorator_takes_the_options_too() -> None:
    made = djangos_task(max_attempts=3, fencing="strict")(nothing)
    assert isinstance(made, PgTask)
    assert (made.max_attempts, made.fencing) == (3, "strict")
    with pytest.raises(InvalidTask, match="max_attempts"):
        djangos_task(max_attempts=0)(nothing)


def test_djangos_own_decorator_makes_a_task_of_this_queue() -> None:
    made = djangos_task(nothing)
    assert isinstance(made, PgTask)
    assert made.using(unique_key="k", run_after=timedelta(hours=1)).unique_key == "k"


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks can be pickled since Django 6.1")
def test_a_task_survives_pickling_with_its_options() -> None:
    changed = add.using(priority=3, run_after=timedelta(hours=1), unique_key="k")
    assert pickle.loads(pickle.dumps(changed)) == changed
    assert copy.deepcopy(changed) == changed


@pytest.mark.skipif(django.VERSION < (6, 1), reason="tasks can be pickled since Django 6.1")
@pytest.mark.django_db
def test_a_result_survives_pickling() -> None:
    result = add.enqueue(1, 2)
    again = pickle.loads(pickle.dumps(result))
    assert (again.id, again.task, again.args) == (result.id, add, [1, 2])


# Under other backends, as projects have them in tests


@task(max_attempts=7, retry=Backoff(base=timedelta(seconds=9)))
def double(number: int) -> int:
    return number * 2


def test_a_task_runs_under_the_immediate_backend_with_every_option(settings) -> None:
    settings.TASKS = {"default": {"BACKEND": f"{DJANGOS}.immediate.ImmediateBackend"}}
    made = task(max_attempts=2, fencing="strict", lease=timedelta(minutes=1), no_retry=(KeyError,))(
        double.func
    )
    for one in (made, double):
        result = one.using(unique_key="receipt-42", max_attempts=3, priority=5).enqueue(21)
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 42)


def test_a_task_waits_under_the_dummy_backend_with_every_option(settings) -> None:
    settings.TASKS = {"default": {"BACKEND": f"{DJANGOS}.dummy.DummyBackend"}}
    task(max_attempts=2)(double.func).using(unique_key="k", run_after=timedelta(hours=1)).enqueue(1)
    double.using(run_after=datetime(2030, 1, 1, tzinfo=UTC)).enqueue(2)
    assert [result.args for result in task_backends["default"].results] == [[1], [2]]


def test_a_delay_is_refused_where_run_after_is(settings) -> None:
    settings.TASKS = {"default": {"BACKEND": f"{DJANGOS}.immediate.ImmediateBackend"}}
    for run_after in (timedelta(hours=1), datetime(2030, 1, 1, tzinfo=UTC)):
        with pytest.raises(InvalidTask, match="does not support run_after"):
            double.using(run_after=run_after)


@pytest.mark.django_db
def test_a_task_may_name_another_backend_than_the_default(settings) -> None:
    """Report 139."""
    settings.TASKS = {
        "default": {"BACKEND": f"{DJANGOS}.immediate.ImmediateBackend"},
        "pg": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["default", "emails"]},
    }
    elsewhere = task(backend="pg", queue_name="emails", max_attempts=2)(double.func)
    result = elsewhere.enqueue(21)
    assert (result.backend, result.status) == ("pg", TaskResultStatus.READY)
    job = Job.objects.get(pk=result.id)
    assert (job.backend, job.queue, job.max_attempts) == ("pg", "emails", 2)
    assert double.using(backend="pg").enqueue(1).status == TaskResultStatus.READY
    assert double.enqueue(1).status == TaskResultStatus.SUCCESSFUL


# Start-up


STORE = '''
from django.db import models
from django_pgqueue import JobContext, task
{more}

class Thing(models.Model):
    """A model beside its task."""

@task(takes_context=True, max_attempts=2)
def touch(context, thing_id): ...
'''


def run_python(code: str, folder: Path, **settings: object) -> str:
    """Run code in another process, on settings that change the test project's; return what it prints."""
    lines = ["from testproject.settings import *"]
    lines += [f"{name} = {value}" for name, value in settings.items()]
    (folder / "other_settings.py").write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
            "DJANGO_SETTINGS_MODULE": "other_settings",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "more",
    ["", "from django_pgqueue.backend import PgQueueBackend"],
    ids=["by the package", "with the backend imported"],
)
def test_a_models_module_of_an_app_listed_before_may_have_tasks(tmp_path: Path, more: str) -> None:
    """Report 143."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "__init__.py").touch()
    (store / "models.py").write_text(STORE.format(more=more))
    code = (
        "import django; django.setup(); from store.models import touch; print(touch.max_attempts, touch.name)"
    )
    assert run_python(code, tmp_path, INSTALLED_APPS='["store", *INSTALLED_APPS]') == "2 touch"


@pytest.mark.skipif(django.VERSION < (6, 0), reason="needs django.tasks")
def test_django_code_in_an_earlier_app_needs_no_import_of_this_package(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "__init__.py").touch()
    (store / "models.py").write_text(
        "from django.db import models\nfrom django.tasks import task\n\n@task\ndef touch(): ...\n"
    )
    code = "import django; django.setup(); from store.models import touch; print(type(touch).__name__)"
    assert run_python(code, tmp_path, INSTALLED_APPS='["store", *INSTALLED_APPS]') == "PgTask"


@pytest.mark.django_db(transaction=True)
def test_a_task_of_this_package_runs_in_a_real_worker() -> None:
    sums, futures = add.enqueue(20, right=22), in_future.enqueue()
    call_command("runworker", batch=True, verbosity=0)
    for result in (sums, futures):
        result.refresh()
    assert (sums.return_value, futures.return_value) == (42, "async")
    assert django_pgqueue.task is task and isinstance(add, Task)
