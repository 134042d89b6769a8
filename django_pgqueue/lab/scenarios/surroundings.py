"""."""
from ..scenario import Scenarios

scenarios = Scenarios("surroundings")
