"""For people who write their own consumer: claim jobs, keep their leases, end them; each write says its verdict."""

from .lease import Lease
from .leases import Renewal, claim, reclaim, renew
from .outcomes import complete, fail, release
from .states import Verdict

__all__ = ["Lease", "Renewal", "Verdict", "claim", "complete", "fail", "reclaim", "release", "renew"]
