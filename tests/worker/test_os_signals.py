"""A worker leaves the process's signals as they were."""

import signal
import threading

import pytest
from django.core.management import call_command

from tests.processes import tasks
from tests.processes.stage import Stage

TERM, INT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGKILL


@pytest.mark.parametrize("thread", ["main", "other"])
def test_the_command_runs_in_any_thread_and_leaves_the_signal_handlers_alone(
    stage: Stage, thread: str
) -> None:
    """Report 56."""
    before = {number: signal.getsignal(number) for number in (TERM, INT)}
    job = tasks.noop.enqueue()
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call_command("runworker", batch=True, verbosity=0))
        except BaseException as error:
            outcome.append(error)

    if thread == "main":
        run()
    else:
        other = threading.Thread(target=run)
        other.start()
        other.join(20)
        assert not other.is_alive()

    assert outcome == [None]
    assert stage.brief(int(job.id)) == ("done", 1, 1)
    assert {number: signal.getsignal(number) for number in (TERM, INT)} == before
    assert [item.name for item in threading.enumerate() if item.name.startswith("pgqueue")] == []


def test_a_worker_in_a_thread_leaves_signals_to_the_owner_of_the_process(stage: Stage) -> None:
    """`call_command` off the main thread must not make the process deaf to SIGTERM. Report 51."""
    job = stage.enqueue("hold", "never")
    code = (
        "import threading; from django.core.management import call_command;"
        "call = threading.Thread(target=call_command, args=['runworker'], daemon=True); call.start(); call.join()"
    )
    with stage.child("shell", "-v0", "-c", code) as process:
        stage.wait_note("started", job)
        process.send_signal(TERM)
        assert process.wait(10) == -TERM
