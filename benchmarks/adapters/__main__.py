"""python -m benchmarks.adapters NAME describe|setup|fill COUNT KIND|one COUNT|pickup COUNT SHORTEST LONGEST."""

import json
import os
import random
import sys
import threading
import time
from importlib import import_module

from . import TEXT

WARM_UP = 50


def describe(adapter):
    """Return what the benchmark needs to know about this queue."""
    names = ("TABLES", "LEFT", "CHECK", "MARK", "WORKERS")
    return {name.lower(): getattr(adapter, name, "SELECT 0") for name in names}


def setup(adapter):
    """Make the tables."""
    adapter.setup()


def fill(adapter, count, kind):
    """Enqueue many at once."""
    began = time.perf_counter()
    adapter.fill(int(count), kind)
    return {"seconds": time.perf_counter() - began}


def one(adapter, count):
    """Enqueue one by one, each in its own transaction."""
    for _ in range(WARM_UP):
        adapter.enqueue(TEXT)
    began = time.perf_counter()
    for _ in range(int(count)):
        adapter.enqueue(TEXT)
    return {"seconds": time.perf_counter() - began}


def pickup(adapter, count, shortest, longest):
    """Enqueue now and then a job that notes how long it took to be run."""
    for _ in range(int(count)):
        threading.Event().wait(random.uniform(float(shortest), float(longest)))
        adapter.stamp(time.time())


def main(name, command, *arguments):
    """Run one command and print its answer as the last line."""
    module = f"benchmarks.adapters.{name}"
    if "DJANGO_SETTINGS_MODULE" not in os.environ and name in ("pgqueue", "django_tasks_db", "django_ox"):
        os.environ["DJANGO_SETTINGS_MODULE"] = module
    adapter = import_module(module)
    if "DJANGO_SETTINGS_MODULE" in os.environ:
        import django

        django.setup()
    commands = {"describe": describe, "setup": setup, "fill": fill, "one": one, "pickup": pickup}
    answer = commands[command](adapter, *arguments)
    print(json.dumps(answer))


main(*sys.argv[1:])
