"""The tables of the queue."""

from .effect import Effect
from .failure import Failure
from .job import Job
from .rejection import Rejection
from .worker import Worker

__all__ = ["Effect", "Failure", "Job", "Rejection", "Worker"]
