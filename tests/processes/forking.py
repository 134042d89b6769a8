"""Starts workers by forking a process that has Django loaded: `manage.py runworker FLAGS` without its half second.

Each line read is a request: `start LOG FLAGS…` answers the process id, `wait PID` its exit code.
"""

import os
import sys

import django
from django.core.management import execute_from_command_line, load_command_class
from django.db import connections


def main() -> None:
    django.setup()
    load_command_class("django_pgqueue", "runworker")  # once, for every fork
    assert not any(connection.connection for connection in connections.all())
    for line in sys.stdin:
        verb, *rest = line.split()
        if verb == "wait":
            _, status = os.waitpid(int(rest[0]), 0)
            answer(os.waitstatus_to_exitcode(status))
        elif (pid := os.fork()) == 0:
            log, *flags = rest
            output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for stream in (1, 2):
                os.dup2(output, stream)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            execute_from_command_line(["manage.py", "runworker", *flags])
            return
        else:
            answer(pid)


def answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
