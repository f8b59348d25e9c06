"""Transitions as CIM_AlertIndications: their identity and properties, as columns."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from pillion_rules import Reason, Rule, TransitionKind
from pillion_rules.names import CLEARED_SEVERITY, levels, value_map
from pyspark_pillion.publishing import Value, identifier

CLASS = "CIM_AlertIndication"
#: Defines the values of MessageID.
_OWNER = "Pillion"
_UTC = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}
#: What no XML has, and the most characters of a text of data.
_NOT_IN_XML = r"[\x00-\x08\x0B\x0C\x0E-\x1F\uFFFE\uFFFF]"
_LONGEST_TEXT = 10_000
#: AlertType and ProbableCause of a rule that was removed: Other, Unknown.
_OTHER, _UNKNOWN = 1, 0


def identity() -> list[Column]:
    """What tells two transitions of a source apart."""
    return _identity(F.col("transition"), level=F.col("level"), at=F.col("at"))


def _identity(transition: Column, *, level: Column, at: Column) -> list[Column]:
    return [F.col("rule"), F.to_json("key"), transition, level, at]


def alert_properties(rules: Sequence[Rule], *, source: str) -> dict[str, Value]:
    """Return the properties of an indication, and its group."""
    types, causes = value_map("AlertType"), value_map("ProbableCause")
    is_raise = F.col("transition") == TransitionKind.RAISED.value
    is_clear = F.col("transition") == TransitionKind.CLEARED.value
    type_of = by_rule({rule.name: types[rule.alert_type] for rule in rules})
    cause_of = by_rule({rule.name: causes[rule.probable_cause] for rule in rules})
    raise_of = identifier(
        _identity(
            F.lit(TransitionKind.RAISED.value), level=F.col("raised_level"), at=F.col("raised_at")
        ),
        source=source,
        class_name=CLASS,
    )
    severity = F.element_at(_map(levels()), F.col("level"))
    return {
        "AlertType": F.coalesce(type_of, F.lit(_OTHER)),
        "OtherAlertType": F.when(type_of.isNull(), "rule removed"),
        "PerceivedSeverity": F.when(is_clear, CLEARED_SEVERITY).otherwise(severity),
        "ProbableCause": F.coalesce(cause_of, F.lit(_UNKNOWN)),
        "EventID": F.col("rule"),
        "EventTime": F.col("at"),
        "AlertingManagedElement": _clean(_element(rules)),
        "Message": _clean(F.col("text")),
        "MessageID": F.col("transition"),
        "OwningEntity": _OWNER,
        "MessageArguments": F.array_compact(
            F.array(
                F.col("level"),
                _utc("since"),
                F.col("count").cast("string"),
                F.col("reason"),
            )
        ),
        "CorrelatedIndications": F.when(~is_raise, F.array(raise_of)),
        "group": F.sha2(F.to_json(F.struct("rule", "key", F.unix_micros("raised_at"))), 256),
    }


def _utc(name: str) -> Column:
    """Return the text of a time in UTC. The time zone of the session has no effect."""
    return F.get_json_object(F.to_json(F.struct(name), _UTC), f"$.{name}")


def _clean(text: Column) -> Column:
    """Return a text that every listener can have: one reading stops no stream."""
    return F.left(F.regexp_replace(text, _NOT_IN_XML, "\ufffd"), F.lit(_LONGEST_TEXT))


def _element(rules: Sequence[Rule]) -> Column:
    """The object of an alert, such as ``origin=JFK``; of a removed rule the values alone: a rule of
    its name may have other keys."""
    is_removed = F.col("reason").eqNullSafe(Reason.REMOVED.value)
    names = F.when(~is_removed, by_rule({rule.name: list(rule.keys) for rule in rules}))
    pairs = F.zip_with(names, F.col("key"), lambda name, value: F.concat(name, F.lit("="), value))
    return F.concat_ws(",", F.coalesce(pairs, F.col("key")))


def by_rule(values: Mapping[str, Any]) -> Column:
    """Return the value of a transition's rule; null: the rule was removed."""
    return F.try_element_at(_map(values), F.col("rule"))


def _map(values: Mapping[str, Any]) -> Column:
    return F.create_map(*(F.lit(one) for one in chain(*values.items())))
