"""`context.once()`: an effect outside the database is not repeated by a later attempt."""

import json
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

from django_pgqueue import LeaseLost, leases, outcomes
from django_pgqueue.exceptions import InvalidPayload
from django_pgqueue.models import Effect, Rejection
from tests.context.holding import MOVES, context_of
from tests.races.tools import claim_one, expire, new_job, new_jobs, only_rejection, reclaimed, session

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


class Mailer:
    """An outside service that counts."""

    def __init__(self, answer="sent"):
        self.answer = answer
        self.calls = []

    def send(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.answer


@pytest.fixture
def context():
    new_job()
    return context_of(claim_one("A"))


def again(context):
    """Return the context of the next attempt, after a failure of this one."""
    outcomes.fail(context.holding.lease, ValueError(), delay=timedelta(0))
    return context_of(claim_one("B"))


def test_the_effect_is_called_with_its_arguments_and_its_result_is_kept(context):
    mailer = Mailer({"id": 7})
    assert context.once("mail", mailer.send, "a", key=context.idempotency_key) == {"id": 7}
    assert mailer.calls == [(("a",), {"key": context.idempotency_key})]
    effect = Effect.objects.get()
    assert (effect.job_id, effect.key, effect.generation, effect.result) == (
        context.job_id,
        "mail",
        1,
        {"id": 7},
    )


def test_every_later_attempt_gets_the_saved_result_and_the_effect_is_not_called_again(context):
    mailer = Mailer("first")
    context.once("mail", mailer.send)
    for _ in range(2):
        context = again(context)
        mailer.answer = "another"
        assert context.once("mail", mailer.send) == "first"
    assert len(mailer.calls) == 1
    assert Effect.objects.get().generation == 1


def test_the_first_and_the_later_attempts_see_the_same_value_as_json_keeps_it(context):
    first = context.once("x", lambda: {"pair": (1, 2), "none": None})
    assert first == {"pair": [1, 2], "none": None}
    assert again(context).once("x", pytest.fail) == first


@pytest.mark.parametrize("nothing", [None, False, 0, "", [], {}])
def test_a_result_that_looks_like_nothing_is_a_result(nothing, context):
    assert context.once("x", lambda: nothing) == nothing
    assert again(context).once("x", pytest.fail) == nothing


def test_effects_are_told_apart_by_name_and_by_job():
    new_jobs(2)
    one, other = (context_of(lease) for lease in leases.claim(worker="A", limit=2))
    mailer = Mailer()
    for context, name in ((one, "a"), (one, "b"), (other, "a")):
        context.once(name, mailer.send, context.job_id)
    assert len(mailer.calls) == Effect.objects.count() == 3


def test_an_effect_that_raises_is_not_kept_and_is_called_again(context):
    with pytest.raises(ZeroDivisionError):
        context.once("x", lambda: 1 / 0)
    assert not Effect.objects.exists()
    assert again(context).once("x", lambda: 3) == 3


@pytest.mark.parametrize("move", MOVES)
def test_an_effect_whose_job_moved_on_during_the_call_is_not_kept_and_says_so(move, context):
    moved, verdict = MOVES[move]
    with pytest.raises(LeaseLost) as caught:
        context.once("mail", lambda: str(moved(context.holding.lease)))
    assert caught.value.verdict == verdict
    assert not Effect.objects.exists()
    rejection = only_rejection(context.job_id)
    assert (rejection.action, rejection.verdict) == ("effect", verdict)


def test_the_successors_saved_result_is_not_overwritten_by_the_stale_attempt(context):
    def slow():
        newer = context_of(reclaimed(context.holding.lease))
        assert newer.once("mail", lambda: "the successor's") == "the successor's"
        return "stale"

    with pytest.raises(LeaseLost):
        context.once("mail", slow)
    assert Effect.objects.get().result == "the successor's"


def test_a_stale_attempt_that_asks_late_gets_the_saved_result_without_a_call(context):
    """Reading needs no lease: it is what happened, and calls nothing."""
    newer = context_of(reclaimed(context.holding.lease))
    newer.once("mail", lambda: "sent")
    assert context.once("mail", pytest.fail) == "sent"
    assert not Rejection.objects.exists()


def test_a_refused_save_leaves_its_record_although_the_callers_transaction_rolls_back(context):
    with pytest.raises(LeaseLost), transaction.atomic():
        context.once("mail", lambda: other_worker_takes(context.holding.lease))
    assert only_rejection(context.job_id).action == "effect"


def other_worker_takes(lease):
    from tests.races.tools import InThread

    def take():
        expire(lease.job_id)
        assert leases.reclaim(worker="B")

    InThread(take).result()


@pytest.mark.parametrize("value", [object(), float("inf"), "\ud800", {"k\x00": 1}])
def test_a_result_that_json_cannot_hold_is_an_error_and_the_effect_counts_as_not_had(value, context):
    with pytest.raises(InvalidPayload):
        context.once("x", lambda: value)
    assert not Effect.objects.exists()
    assert again(context).once("x", lambda: "storable") == "storable"


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_name_that_no_row_can_hold_is_refused_before_the_call(name, context):
    with pytest.raises(ValueError, match="1 to 200 characters"):
        context.once(name, pytest.fail)
    assert context.once("x" * 200, lambda: 1) == 1


def test_the_effect_runs_outside_any_transaction(context):
    def look():
        with session() as second:
            return second.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND datname = current_database()"
                " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            ).fetchone()[0]

    assert context.once("x", look) == 0


def test_the_saved_effects_survive_an_operators_retry_and_go_with_the_job(context):
    context.once("mail", lambda: "sent")
    outcomes.fail(context.holding.lease, ValueError())
    outcomes.retry(context.job_id)
    assert context_of(claim_one("B")).once("mail", pytest.fail) == "sent"
    assert json.dumps(Effect.objects.get().result) == '"sent"'


@pytest.mark.parametrize("kind", ["function", "coroutine function"])
def test_an_effect_is_had_once_and_its_result_kept(kind, context):
    calls = []

    def send(number):
        calls.append(number)
        return (number,)

    async def asend(number):
        return send(number)

    func = send if kind == "function" else asend
    first = async_to_sync(context.aonce)("mail", func, 7)
    newer = context_of(reclaimed(context.holding.lease))
    assert async_to_sync(newer.aonce)("mail", func, 8) == first == [7]
    assert newer.once("mail", pytest.fail) == [7]
    assert calls == [7]


def test_an_effect_whose_job_moved_on_during_the_call_is_refused(context):
    async def send():
        await sync_to_async(reclaimed)(context.holding.lease)

    with pytest.raises(LeaseLost):
        async_to_sync(context.aonce)("mail", send)
    assert not Effect.objects.exists()
    assert only_rejection(context.job_id).action == "effect"


def test_an_unserialisable_result_of_an_effect_is_an_error(context):
    async def send():
        return object()

    with pytest.raises(InvalidPayload):
        async_to_sync(context.aonce)("mail", send)
    assert not Effect.objects.exists()
