"""."""
from ..scenario import Scenarios

scenarios = Scenarios("failover")
