"""."""
from ..scenario import Scenarios

scenarios = Scenarios("soak")
