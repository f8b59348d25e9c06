"""A dry run: which subscriptions would get an indication, and why the others would not."""

import asyncio
from collections.abc import Mapping

from pillion_cim.filters.explanation import compared_values
from pillion_cim.model import CIMInstance, CIMValue
from pillion_cim.schema import Schema
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.filter import IndicationFilter
from pillion_sidecar.config.schema.subscription import RepeatPolicy
from pillion_sidecar.delivery.entries import SubscriptionEnd
from pillion_sidecar.intake.decoding import Decoded, decode_object, parse_json
from pillion_sidecar.routing import Judgement, NotSelected, Router
from pillion_sidecar.wire.diagnosis import Explanation, Verdict

#: Subscriptions in one answer.
MOST_VERDICTS = 1000
#: Values of a WHERE that an answer shows, and characters of one, and of a query.
MOST_VALUES = 8
LONGEST_VALUE = 80
LONGEST_QUERY = 500
#: Words for the ends of subscriptions in an answer.
ENDS = {
    SubscriptionEnd.DISABLED: ("disabled", "its resource has subscriptionState: Disabled"),
    SubscriptionEnd.EXPIRED: ("expired", "subscriptionDurationSeconds is over"),
    SubscriptionEnd.FATAL_ERROR: ("fatal-error", "onFatalErrorPolicy has ended it"),
    SubscriptionEnd.REMOVAL_ACTION: ("removal-action", "subscriptionRemovalAction has ended it"),
    SubscriptionEnd.REMOVED: ("removed", "it was removed"),
}


async def explain(
    body: bytes,
    *,
    router: Router,
    configuration: Configuration,
    ends: Mapping[str, SubscriptionEnd],
) -> Explanation:
    """Judge one indication in the JSON form of publishers, in a thread. ``ends``: why subscriptions
    are inactive, by name. Raises LineError."""
    return await asyncio.to_thread(_explain, body, router, configuration, ends)


def _explain(
    body: bytes,
    router: Router,
    configuration: Configuration,
    ends: Mapping[str, SubscriptionEnd],
) -> Explanation:
    decoded = decode_object(parse_json(body), schema=router.schema)
    instance = decoded.instance()
    judgements = router.judge(instance, decoded.source_namespace)
    judgements.sort(key=lambda one: (_why_not(one, ends) is not None, one.target.subscription))
    return Explanation(
        revision=configuration.revision,
        class_name=decoded.class_name,
        source=decoded.source,
        identifier=decoded.identifier,
        subscriptions=[
            _verdict(one, decoded, router=router, configuration=configuration, ends=ends)
            for one in judgements[:MOST_VERDICTS]
        ],
        selected=sum(_why_not(one, ends) is None for one in judgements),
        total=len(judgements),
    )


def _why_not(one: Judgement, ends: Mapping[str, SubscriptionEnd]) -> str | None:
    if one.why_not is not None:
        return one.why_not
    end = ends.get(one.target.subscription)
    return None if end is None else ENDS[end][0]


def _verdict(
    one: Judgement,
    decoded: Decoded,
    *,
    router: Router,
    configuration: Configuration,
    ends: Mapping[str, SubscriptionEnd],
) -> Verdict:
    target = one.target
    named = configuration.filters[target.filter_name]
    why_not = _why_not(one, ends)
    details = [
        _detail(one, decoded, named, router=router)
        if one.why_not is not None
        else _detail_of_selected(one, configuration, ends)
    ]
    if (problem := configuration.kept_filters.get(target.filter_name)) is not None:
        details.append(f"the last good version of {named.name}: its edit is wrong: {problem}")
    return Verdict(
        subscription=target.subscription,
        filter=target.filter_name,
        destination=target.destination,
        selected=why_not is None,
        reason=why_not,
        detail="; ".join(filter(None, details)),
    )


def _detail_of_selected(
    one: Judgement, configuration: Configuration, ends: Mapping[str, SubscriptionEnd]
) -> str:
    if (end := ends.get(one.target.subscription)) is not None:
        return f"the filter selects it, but {ENDS[end][1]}"
    policy = configuration.subscriptions[one.target.subscription].repeat_notification.policy
    if policy is RepeatPolicy.NONE:
        return ""
    return f"unless repeatNotificationPolicy: {policy} withholds it as a repeat"


def _detail(one: Judgement, decoded: Decoded, named: IndicationFilter, *, router: Router) -> str:
    if one.why_not is NotSelected.CLASS:
        known = "" if not decoded.undeclared else ", which is not known"
        return f"its class is {decoded.class_name}{known}; {_query(named)}"
    if one.why_not is NotSelected.SOURCE_NAMESPACE:
        given = decoded.source_namespace
        has = "it has none" if given is None else f"it has {given!r:.{LONGEST_VALUE}}"
        return f"sourceNamespace: {has}; the filter: {', '.join(named.source_namespaces)}"
    value = "is unknown" if one.value is None else "is false"
    return f"WHERE {value}, since {_values(named, decoded.instance(), router.schema)}"


def _values(named: IndicationFilter, instance: CIMInstance, schema: Schema) -> str:
    values = compared_values(
        named.query, language=named.query_language.value, schema=schema, instance=instance
    )
    shown = [f"{path} is {_shown(value)}" for path, value in [*values.items()][:MOST_VALUES]]
    rest = len(values) - len(shown)
    all_shown = ", ".join([*shown, f"and {rest} more"] if rest else shown)
    return f"{all_shown}; {_query(named)}"


def _query(named: IndicationFilter) -> str:
    query = " ".join(named.query.split())
    return f"the query: {query if len(query) <= LONGEST_QUERY else f'{query[:LONGEST_QUERY]}…'}"


def _shown(value: CIMValue) -> str:
    if value is None:
        return "NULL"
    text = str(value) if not isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
