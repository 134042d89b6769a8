"""Where this was measured."""

import os
import platform
import time
from importlib.metadata import version

from .server import connect

SERVER = (
    "server_version",
    "wal_sync_method",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
)


def machine_facts(url: str) -> dict[str, str]:
    """Return what the reader of the numbers needs to know about the machine and the versions."""
    facts = {
        "CPU": f"{_cpu()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **{name: version(name) for name in ("Django", "psycopg")},
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    with connect(url) as session:
        facts["PostgreSQL"] = session.execute("SHOW server_version").fetchone()[0]
        shown = (f"{name} {session.execute(f'SHOW {name}').fetchone()[0]}" for name in SERVER[1:])
        facts["server"] = ", ".join(shown)
    return facts


def load() -> float:
    """Return the machine's load, averaged over a minute."""
    return os.getloadavg()[0]


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as info:
            return next(line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
