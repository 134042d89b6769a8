"""The lists: their cost has a bound, for any address and any number of rows."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from django_pgqueue.admin import changelist
from django_pgqueue.models import Failure, Job, Rejection, Worker
from tests.admin.reading import queries_of, text_of

BASE = "/admin/django_pgqueue/"
JOBS = f"{BASE}job/"
LISTS = ["job", "rejection", "failure", "worker"]
MakeJob = Callable[..., Job]


def fill(count: int, make_job: MakeJob) -> None:
    """Make `count` jobs, each with a failure and a rejection, and as many workers."""
    for number in range(count):
        job = make_job("failed", worker_ids=["a"], queue=f"q{number % 3}")
        Failure.objects.create(job=job, generation=1, kind="error", exception_class="E", message="m")
        Rejection.objects.create(job_id=job.pk, generation=1, action="complete", verdict="superseded")
        Worker.objects.create(id=f"w{Worker.objects.count()}", host="h", pid=1, concurrency=1)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_takes_the_same_number_of_queries_for_any_number_of_rows(
    name: str, boss: Client, make_job: MakeJob
) -> None:
    """Report 108."""
    fill(5, make_job)
    few = queries_of(boss, f"{BASE}{name}/")
    fill(60, make_job)
    many = queries_of(boss, f"{BASE}{name}/")
    assert len(few) == len(many) <= 8


@pytest.mark.parametrize(
    "address",
    [
        *(f"{name}/" for name in LISTS),
        "job/?state=failed&queue=q1",
        "job/?q=tasks",
        "job/?p=2",
        "job/?_facets=1",
    ],
)
def test_no_list_counts_or_collects_distinct_values(address: str, boss: Client, make_job: MakeJob) -> None:
    """Report 106."""
    fill(60, make_job)
    for statement in queries_of(boss, BASE + address):
        assert not re.match(r"\s*SELECT\s+(COUNT|DISTINCT)\b", statement, re.IGNORECASE), statement


def test_the_large_columns_are_not_read_for_a_list(boss: Client, make_job: MakeJob) -> None:
    """Report 107."""
    make_job(payload={"args": ["large"], "kwargs": {}}, result={"large": True})
    for statement in queries_of(boss, JOBS):
        assert not re.search(r'"(payload|result|traceback)"', statement)


@pytest.mark.parametrize("order", ["1", "-3.2", "5", "x"])
def test_no_address_can_sort_by_a_column_without_an_index(
    order: str, boss: Client, make_job: MakeJob
) -> None:
    """Report 106."""
    fill(5, make_job)
    statements = queries_of(boss, f"{JOBS}?o={order}")
    ordered = [re.findall(r'ORDER BY "django_pgqueue_job"\.(\S+ \w+)', statement) for statement in statements]
    assert {item for items in ordered for item in items} == {'"id" DESC'}


def test_a_search_finds_an_id_exactly_or_a_part_of_a_task(boss: Client, make_job: MakeJob) -> None:
    job = make_job(task="shop.tasks.mail")
    other = make_job(task="shop.tasks.print")

    def found(term: str) -> list[int]:
        return [row.pk for row in boss.get(JOBS, {"q": term}).context["cl"].result_list]

    assert found(f" {job.pk} ") == [job.pk]
    assert found("TASKS.pri") == [other.pk]
    assert found("shop") == [other.pk, job.pk]
    for term in ("9" * 30, "9" * 5000, "²", "%", "1_0", "'"):
        assert found(term) == []


def test_older_rows_are_a_link_away(
    boss: Client, many_jobs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelist, "LISTED", 60)
    many_jobs(150)
    seen: list[int] = []
    address: str | None = "?state=failed"
    while address:
        for page in ("", "&p=2"):
            cl = boss.get(JOBS + address + page).context["cl"]
            if page and not cl.multi_page:
                continue
            seen += [job.pk for job in cl.result_list]
        address = cl.older_url
    assert seen == sorted(Job.objects.values_list("pk", flat=True), reverse=True)


def test_a_condition_without_an_index_looks_through_a_bounded_number_of_rows(
    boss: Client, make_job: MakeJob, many_jobs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Report 106."""
    monkeypatch.setattr(changelist, "LOOKED_THROUGH", 20)
    old = make_job("failed", task="old.task")
    waiting = make_job("ready", task="old.task")
    many_jobs(50, "done")
    first = boss.get(f"{JOBS}?state=failed")
    assert "20 rows were looked through." in text_of(first)
    address, turns = first.context["cl"].older_url, 0
    while not (listed := boss.get(JOBS + address).context["cl"]).result_list:
        address, turns = listed.older_url, turns + 1
    assert [job.pk for job in listed.result_list] == [old.pk]
    assert turns == 1
    # What an index finds is found wherever it is.
    assert [job.pk for job in boss.get(f"{JOBS}?state=ready").context["cl"].result_list] == [waiting.pk]
    assert [job.pk for job in boss.get(f"{JOBS}?q={old.pk}").context["cl"].result_list] == [old.pk]


@pytest.mark.parametrize("query", ["before=x", "before=-1", "queue=%00", "state=%00", "p=99", "nothing=1"])
def test_a_wrong_address_leads_back_to_the_list(
    query: str, boss: Client, many_jobs: Callable[..., None]
) -> None:
    many_jobs(60)
    assert boss.get(f"{JOBS}?{query}", follow=True).status_code == 200
