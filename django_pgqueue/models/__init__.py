"""The tables of the queue."""

from .failure import Failure
from .job import Job
from .rejection import Rejection
from .worker import Worker

__all__ = ["Failure", "Job", "Rejection", "Worker"]
