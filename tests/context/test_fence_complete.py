"""`with context.complete()`: the job ends in the commit of its block, or neither happens."""

from functools import partial

import pytest
from django.db import OperationalError, transaction

from django_pgqueue import LeaseLost, outcomes, task
from django_pgqueue.conf import Options
from django_pgqueue.exceptions import InvalidPayload
from django_pgqueue.models import Failure, Job, Rejection
from django_pgqueue.states import Verdict
from django_pgqueue.worker.running.execution import Execution
from testproject.shop.models import Order
from tests.context.holding import bad_line, context_of, holding_of
from tests.races.tools import at_once, backend_pid, claim_one, new_job, reclaimed, row, session

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture
def context():
    new_job()
    return context_of(claim_one("A"))


def write(number="1"):
    Order.objects.create(number=number, customer="c", email="c@example.com", amount=1)


def numbers():
    return set(Order.objects.values_list("number", flat=True))


def seen_by_others(job_id):
    with session() as second:
        state = second.execute("SELECT state FROM django_pgqueue_job WHERE id = %s", [job_id]).fetchone()[0]
        return state, second.execute("SELECT count(*) FROM shop_order").fetchone()[0]


def test_the_end_of_the_job_and_the_blocks_writes_become_visible_together(context):
    with context.complete():
        write()
        assert seen_by_others(context.job_id) == ("running", 0)
    assert seen_by_others(context.job_id) == ("done", 1)


def test_the_result_is_given_at_the_start_or_set_inside_the_block(context):
    with context.complete(result={"from": "the start"}) as completion:
        assert completion.result == {"from": "the start"}
        completion.result = {"from": ["the", "block"]}
    assert row(context.job_id).result == {"from": ["the", "block"]}


def test_without_a_result_there_is_none(context):
    with context.complete():
        pass
    job = row(context.job_id)
    assert (job.state, job.result, job.lease_until) == ("done", None, None)
    assert job.finished_at is not None


@pytest.mark.parametrize("result", [object(), float("nan"), {"k\x00": 1}, {1: 2}])
def test_a_result_that_cannot_be_stored_rolls_the_block_back(result, context):
    with pytest.raises(InvalidPayload), context.complete(result):
        write()
    assert numbers() == set()
    assert row(context.job_id).state == "running"
    assert not Rejection.objects.exists()


def test_a_second_completion_is_no_rejection_but_its_block_is_not_entered(context):
    with context.complete(1):
        write()
    with pytest.raises(LeaseLost) as caught, context.complete(2):
        write("2")
    assert caught.value.verdict == Verdict.ALREADY_ACCEPTED
    assert (row(context.job_id).result, numbers()) == (1, {"1"})
    assert not Rejection.objects.exists()


def test_a_completion_inside_a_completion_is_a_mistake_that_is_named(context):
    with pytest.raises(RuntimeError, match="ends the job by itself"), context.complete(1):
        write()
        with context.complete(2):
            pass
    assert numbers() == set()
    assert row(context.job_id).state == "running"
    with context.complete(3):
        pass
    assert row(context.job_id).result == 3


# Inside a transaction of the task's own


class Stopped(Exception):
    """Raised by a task on purpose."""


def test_a_completion_inside_the_tasks_own_transaction_ends_the_job_with_that_ones_commit(context):
    with transaction.atomic():
        with context.complete(1):
            write()
        assert context.holding.run.completed is False
        assert seen_by_others(context.job_id) == ("running", 0)
    assert context.holding.run.completed is True
    assert seen_by_others(context.job_id) == ("done", 1)


def test_a_job_is_not_done_if_the_transaction_around_its_completion_rolls_back(context):
    with pytest.raises(Stopped), transaction.atomic():
        with context.complete(1):
            write()
        raise Stopped
    assert context.holding.run.completed is False
    assert seen_by_others(context.job_id) == ("running", 0)


# In a worker


@task(takes_context=True)
def complete_then_raise(context, error):
    with context.complete("by itself"):
        write(str(context.job_id))
    raise {"value": ValueError, "exit": SystemExit, "interrupt": KeyboardInterrupt}[error]("after the end")


@task(takes_context=True)
def complete_with_a_callback_that_raises(context):
    with context.complete("by itself"):
        write(str(context.job_id))
        transaction.on_commit(lambda: 1 / 0)


@task(takes_context=True, max_attempts=1)
def complete_then_roll_back(context):
    with transaction.atomic():
        with context.complete("too early"):
            write(str(context.job_id))
        raise ValueError("the outer transaction fails")


@task(takes_context=True)
def complete_then_return_another_result(context):
    with context.complete("by itself"):
        pass
    return object()


def ending_of(one, *args):
    """Run a task as a worker does, and send its ending as a worker does."""
    one.enqueue(*args)
    holding = holding_of(claim_one("A"))
    ending = Execution(Options(), on_options=lambda _: None).run(holding)
    if ending is not None:
        with transaction.atomic():
            accepted = outcomes.end([ending], using="default")
        (reply,) = outcomes.settle([ending], accepted, using="default")
        return row(holding.lease.job_id), reply.verdict
    return row(holding.lease.job_id), None


@pytest.mark.parametrize("error", ["value", "exit", "interrupt"])
def test_an_exception_after_the_completion_does_not_fail_the_job(error):
    job, verdict = ending_of(complete_then_raise, error)
    assert (job.state, job.result, verdict) == ("done", "by itself", Verdict.ALREADY_ACCEPTED)
    assert (numbers(), Failure.objects.count(), Rejection.objects.count()) == ({str(job.pk)}, 0, 0)


def test_a_callback_of_the_commit_that_raises_does_not_fail_the_job():
    job, verdict = ending_of(complete_with_a_callback_that_raises)
    assert (job.state, job.result, verdict) == ("done", "by itself", Verdict.ALREADY_ACCEPTED)
    assert (numbers(), Failure.objects.count(), Rejection.objects.count()) == ({str(job.pk)}, 0, 0)


def test_a_job_whose_completion_was_rolled_back_by_the_task_itself_has_failed():
    job, verdict = ending_of(complete_then_roll_back)
    assert (job.state, job.result, verdict) == ("failed", None, Verdict.ACCEPTED)
    assert (numbers(), Failure.objects.get().exception_class) == (set(), "builtins.ValueError")


def test_what_a_task_returns_after_its_completion_is_not_kept():
    job, verdict = ending_of(complete_then_return_another_result)
    assert (job.state, job.result, verdict) == ("done", "by itself", Verdict.ALREADY_ACCEPTED)


# Uncertain commits


def test_a_completion_whose_reply_was_lost_is_settled_by_reading_the_row(context):
    """The block's writes are there once, the job is done, and the task goes on as if nothing had happened."""
    with bad_line(at="reply") as trap:
        with context.complete("once"):
            write()
        assert trap.caught.is_set()
        assert context.holding.run.completed is True
    assert seen_by_others(context.job_id) == ("done", 1)
    assert row(context.job_id).result == "once"
    assert not Rejection.objects.exists()
    # What the worker then sends for it is answered, and changes nothing.
    assert outcomes.complete(context.holding.lease, "once") == Verdict.ALREADY_ACCEPTED


def test_a_completion_that_never_reached_the_server_has_not_happened(context):
    with bad_line(at="request") as trap:
        with pytest.raises(OperationalError), context.complete("never"):
            write()
        assert trap.caught.is_set()
    assert context.holding.run.completed is False
    assert seen_by_others(context.job_id) == ("running", 0)
    assert not Rejection.objects.exists()
    with context.complete("at last"):  # the same generation, sent again
        write()
    assert seen_by_others(context.job_id) == ("done", 1)


def test_a_completion_whose_reply_was_lost_inside_the_tasks_own_transaction_raises_and_happened_once(context):
    with bad_line(at="reply") as trap:
        with pytest.raises(OperationalError), transaction.atomic(), context.complete("once"):
            write()
        assert trap.caught.is_set()
    assert seen_by_others(context.job_id) == ("done", 1)


def test_a_server_that_stays_away_after_the_lost_reply_leaves_the_verdict_to_the_worker(context, monkeypatch):
    from django_pgqueue.context import fence

    def away(*args, **kwargs):
        raise OperationalError("the server is away")

    with bad_line(at="reply"):
        monkeypatch.setattr(fence, "sort_out", away)
        with pytest.raises(OperationalError), context.complete("once"):
            write()
    assert context.holding.run.completed is False
    assert outcomes.complete(context.holding.lease, "once") == Verdict.ALREADY_ACCEPTED
    assert seen_by_others(context.job_id) == ("done", 1)


def test_a_backend_that_ends_inside_the_block_leaves_nothing_and_the_job_running(context):
    with pytest.raises(OperationalError), context.complete():
        write()
        with session() as second:
            second.execute("SELECT pg_terminate_backend(%s, 10000)", [backend_pid()])
        write("2")
    assert seen_by_others(context.job_id) == ("running", 0)
    assert not Rejection.objects.exists()


def finish(context, name):
    """Complete with a write of its own; return whether that was accepted."""
    try:
        with context.complete(name):
            write(f"{context.job_id} {name}")
    except LeaseLost:
        return False
    return True


def test_two_generations_that_complete_at_once_have_one_winner_and_one_record():
    jobs = []
    for _ in range(20):
        jobs.append(new_job())
        old = claim_one("A")
        newer = reclaimed(old)
        both = [partial(finish, context_of(old), "old"), partial(finish, context_of(newer), "new")]
        assert at_once(*both) == [False, True]
        assert row(old.job_id).result == "new"
    assert numbers() == {f"{job_id} new" for job_id in jobs}
    assert Rejection.objects.count() == 20
    assert Job.objects.exclude(state="done").count() == 0
