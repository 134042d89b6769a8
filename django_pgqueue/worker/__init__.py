"""One `runworker` process: a loop that claims and ends, a pool that runs, a heartbeat that keeps."""

from .settings import WorkerSettings
from .worker import Worker

__all__ = ["Worker", "WorkerSettings"]
