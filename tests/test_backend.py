"""The `django.tasks` backend: what it supports, ids, several backends, and Django's own example."""

import logging
from collections.abc import Iterator
from datetime import timedelta

import django
import pytest
from django.core import mail
from django.core.exceptions import ImproperlyConfigured
from django.core.mail import send_mail
from django.core.management import CommandError, call_command
from django.db import connections

from django_pgqueue import task as our_task
from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.compat import TaskResultDoesNotExist, TaskResultStatus, task_backends
from django_pgqueue.leases import claim
from django_pgqueue.models import Job
from django_pgqueue.outcomes import complete
from django_pgqueue.states import State

if django.VERSION >= (6, 0):
    from django.tasks import default_task_backend, task
    from django.tasks.exceptions import TaskResultMismatch

    IMMEDIATE = "django.tasks.backends.immediate.ImmediateBackend"
else:
    from django_tasks import default_task_backend, task
    from django_tasks.exceptions import TaskResultMismatch

    IMMEDIATE = "django_tasks.backends.immediate.ImmediateBackend"

OURS = "django_pgqueue.backend.PgQueueBackend"
logger = logging.getLogger(__name__)


# The examples of Django's documentation (topics/tasks), word for word.


@task
def email_users(emails, subject, message):
    return send_mail(subject=subject, message=message, from_email=None, recipient_list=emails)


@task(takes_context=True)
def email_users_with_context(context, emails, subject, message):
    logger.debug(f"Attempt {context.attempt} to send user email. Task result id: {context.task_result.id}.")
    return send_mail(subject=subject, message=message, from_email=None, recipient_list=emails)


@task(priority=2, queue_name="receipts")
def email_with_options(emails, subject, message):
    return send_mail(subject=subject, message=message, from_email=None, recipient_list=emails)


MESSAGE = {"emails": ["user@example.com"], "subject": "You have a message", "message": "Hello there!"}


def run_worker(*flags: str) -> None:
    call_command("runworker", "--batch", *flags, verbosity=0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("example", [email_users, email_users_with_context, email_with_options])
def test_djangos_documentation_example_runs_unchanged(example) -> None:
    result = example.enqueue(**MESSAGE)
    assert result.status == TaskResultStatus.READY
    with pytest.raises(ValueError, match="not finished"):
        result.return_value  # noqa: B018
    assert not mail.outbox

    run_worker()

    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL and result.is_finished
    assert result.return_value == 1
    assert result.attempts == 1 and not result.errors
    assert [message.subject for message in mail.outbox] == ["You have a message"]
    assert default_task_backend.get_result(result.id).return_value == 1
    assert example.get_result(result.id).return_value == 1


@pytest.mark.django_db
def test_the_documentations_way_to_change_a_task_works() -> None:
    result = email_users.using(priority=10, queue_name="reports").enqueue(**MESSAGE)
    job = Job.objects.get(pk=result.id)
    assert (job.priority, job.queue) == (10, "reports")
    assert (result.task.priority, result.task.queue_name) == (10, "reports")


def test_everything_that_django_tasks_asks_for_is_supported() -> None:
    backend = task_backends["default"]
    assert isinstance(backend, PgQueueBackend)
    assert backend.supports_defer and backend.supports_async_task
    assert backend.supports_get_result and backend.supports_priority


# get_result


@pytest.mark.django_db
@pytest.mark.parametrize(
    "result_id",
    [
        *("abc", "1.5", "", " 1", "1 ", "+1", "-1", "1e3", "0x1", "1_000", "\u0661", "\x00", "\ud800"),
        *(
            "9" * 19,
            "9" * 5000,
            str(2**63),
            str(2**63 - 1),
            "0",
            -1,
            0,
            10**30,
            None,
            1.0,
            True,
            b"1",
            [1],
            {},
        ),
    ],
)
def test_an_id_that_no_job_has_does_not_exist(result_id: object) -> None:
    email_users.enqueue(**MESSAGE)
    with pytest.raises(TaskResultDoesNotExist):
        default_task_backend.get_result(result_id)
    with pytest.raises(TaskResultDoesNotExist):
        email_users.get_result(result_id)


@pytest.mark.django_db
def test_the_result_of_the_largest_id_is_found() -> None:
    """Report 160."""
    Job.objects.create(pk=2**63 - 1, task=f"{__name__}.email_users")
    assert email_users.get_result(str(2**63 - 1)).status == TaskResultStatus.READY


@pytest.mark.django_db
def test_a_result_of_another_task_is_a_mismatch() -> None:
    with pytest.raises(TaskResultMismatch):
        email_with_options.get_result(email_users.enqueue(**MESSAGE).id)


@pytest.mark.django_db(transaction=True)
def test_a_result_can_be_awaited() -> None:
    import asyncio

    from asgiref.sync import sync_to_async

    async def view() -> tuple[str, str, str]:
        try:
            result = await email_users.aenqueue(**MESSAGE)
            again = await default_task_backend.aget_result(result.id)
            mine = await email_users.aget_result(result.id)
            await mine.arefresh()
            with pytest.raises(TaskResultDoesNotExist):
                await default_task_backend.aget_result("abc")
            return result.id, again.id, mine.id
        finally:
            await sync_to_async(connections.close_all)()

    assert len(set(asyncio.run(view()))) == 1


# Several backends


@pytest.fixture
def two_queues(settings) -> None:
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": ["default"], "OPTIONS": {"DATABASE": "default"}},
        "far": {
            "BACKEND": OURS,
            "QUEUES": ["default", "emails"],
            "OPTIONS": {"DATABASE": "other", "MAX_ATTEMPTS": 2},
        },
    }


@our_task
def shout(text: str) -> str:
    return text.upper()


@pytest.mark.django_db(databases=["default", "other"])
def test_each_backend_has_its_own_database_and_options(two_queues) -> None:
    """Report 139."""
    near = shout.enqueue("near")
    far = shout.using(backend="far", queue_name="emails").enqueue("far")
    assert Job.objects.using("default").get().payload["args"] == ["near"]
    job = Job.objects.using("other").get()
    assert (job.payload["args"], job.backend, job.queue, job.max_attempts) == (["far"], "far", "emails", 2)
    assert task_backends["far"].get_result(far.id).args == ["far"]
    far.refresh()
    near.refresh()
    assert (near.args, far.args) == (["near"], ["far"])


@pytest.mark.django_db(databases=["default", "other"])
def test_a_queue_of_another_backend_is_refused(two_queues) -> None:
    with pytest.raises(Exception, match="Queue 'emails' is not valid for backend"):
        shout.using(queue_name="emails")


@pytest.mark.django_db(databases=["default", "other"])
def test_a_rollback_on_the_queues_own_database_takes_the_job_along(two_queues) -> None:
    from django.db import transaction

    with pytest.raises(ZeroDivisionError), transaction.atomic(using="other"):
        shout.using(backend="far").enqueue("x")
        raise ZeroDivisionError
    assert Job.objects.using("other").count() == 0


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_a_worker_works_for_the_backend_it_is_told(two_queues) -> None:
    """Report 139."""
    near, far = shout.enqueue("near"), shout.using(backend="far").enqueue("far")
    run_worker("--backend", "far")
    near.refresh()
    far.refresh()
    assert (near.status, far.return_value) == (TaskResultStatus.READY, "FAR")


@pytest.mark.django_db(transaction=True)
def test_two_backends_may_share_a_database_and_a_worker_keeps_to_its_own_queues(settings) -> None:
    """Report 139."""
    settings.TASKS = {
        "default": {"BACKEND": OURS, "QUEUES": ["default"]},
        "mails": {"BACKEND": OURS, "QUEUES": ["emails"], "OPTIONS": {"MAX_ATTEMPTS": 1}},
    }
    one, two = shout.enqueue("one"), shout.using(backend="mails", queue_name="emails").enqueue("two")
    run_worker()
    assert [shout.get_result(result.id).status for result in (one, two)] == [
        TaskResultStatus.SUCCESSFUL,
        TaskResultStatus.READY,
    ]
    run_worker("--backend", "mails")
    two.refresh()
    assert two.return_value == "TWO"


@pytest.mark.django_db(transaction=True)
def test_another_backend_may_be_the_default(settings) -> None:
    """Report 139."""
    settings.TASKS = {"default": {"BACKEND": IMMEDIATE}, "pg": {"BACKEND": OURS}}
    assert shout.enqueue("now").return_value == "NOW"
    later = shout.using(backend="pg").enqueue("later")
    assert later.status == TaskResultStatus.READY
    run_worker()
    assert task_backends["pg"].get_result(later.id).return_value == "LATER"


# Routers


class ToOther:
    """Sends the queue to its own database."""

    def db_for_read(self, model, **hints) -> str | None:
        return "other" if model._meta.app_label == "django_pgqueue" else None

    db_for_write = db_for_read

    def allow_relation(self, one, two, **hints) -> None:
        return None


@pytest.fixture
def routed(settings) -> Iterator[None]:
    settings.DATABASE_ROUTERS = [f"{__name__}.ToOther"]
    yield


@pytest.mark.django_db(databases=["default", "other"], transaction=True)
def test_a_router_sends_everything_to_the_other_database(routed) -> None:
    """Report 117."""
    result = shout.using(unique_key="k", run_after=timedelta(hours=-1)).enqueue("there")
    assert shout.using(unique_key="k").enqueue("again").id == result.id
    assert Job.objects.using("default").count() == 0
    assert Job.objects.using("other").count() == 1
    run_worker()
    result.refresh()
    assert result.return_value == "THERE"


@pytest.mark.django_db(databases=["default", "other"])
def test_the_leases_follow_the_router_too(routed) -> None:
    """Report 117."""
    shout.enqueue("there")
    (lease,) = claim(worker="w-1")
    complete(lease, "done")
    assert Job.objects.using("other").get().state == State.DONE


# Wrong settings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"LAESE": timedelta(seconds=1)}, "unknown option LAESE; the options are BACKOFF"),
        ({"LEASE": 30}, "LEASE must be a datetime.timedelta, not 30"),
        ({"MAX_ATTEMPTS": 0}, "MAX_ATTEMPTS must be between 1"),
    ],
)
def test_wrong_options_stop_an_enqueue_and_a_worker_but_not_an_import(
    settings, options: dict[str, object], message: str
) -> None:
    settings.TASKS = {"default": {"BACKEND": OURS, "OPTIONS": options}}
    made = our_task(shout.func)
    with pytest.raises(ImproperlyConfigured, match=message):
        made.enqueue("x")
    with pytest.raises(CommandError, match=message) as error:
        run_worker()
    assert error.value.returncode == 2
