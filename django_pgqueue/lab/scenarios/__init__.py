"""All scenarios, in the order in which they are told."""

from __future__ import annotations

from ..scenario import Scenario
from . import (
    claiming,
    double_run,
    exactly_once,
    failover,
    kills,
    locks,
    network,
    pauses,
    planner,
    policies,
    sessions,
    soak,
    surroundings,
)

ALL: list[Scenario] = [
    scenario
    for module in (
        claiming,
        policies,
        double_run,
        planner,
        exactly_once,
        kills,
        pauses,
        network,
        sessions,
        locks,
        surroundings,
        failover,
        soak,
    )
    for scenario in module.scenarios.all
]
