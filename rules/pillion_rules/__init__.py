"""Rules as data: when an alert is raised, changed, repeated and cleared.

Pure: no clock, no sockets, no Spark. :func:`step` turns the readings of one key into the
transitions of one rule.
"""

from pillion_rules.errors import PillionRulesError, RuleError, StateError
from pillion_rules.machine import Step, removed, step
from pillion_rules.maintenance import MaintenanceWindow
from pillion_rules.rule import Rule, schema
from pillion_rules.rule_set import JudgedReading, KeyStep, RuleSet
from pillion_rules.transitions import CLEAR, Reading, Reason, Transition, TransitionKind, Untold

__all__ = [
    "CLEAR",
    "JudgedReading",
    "KeyStep",
    "MaintenanceWindow",
    "PillionRulesError",
    "Reading",
    "Reason",
    "Rule",
    "RuleError",
    "RuleSet",
    "StateError",
    "Step",
    "Transition",
    "TransitionKind",
    "Untold",
    "removed",
    "schema",
    "step",
]
