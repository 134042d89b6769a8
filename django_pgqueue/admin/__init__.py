"""The queue in Django's admin: everything can be looked at, and only named transitions change anything."""

from .failures import FailureAdmin
from .jobs import JobAdmin
from .rejections import RejectionAdmin
from .workers import WorkerAdmin

__all__ = ["FailureAdmin", "JobAdmin", "RejectionAdmin", "WorkerAdmin"]
