"""Routing: class first, then namespace, then condition; repeat keys only where they are needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cim.filters import Filter, compile_filter
from pillion_cim.model import CIMInstance
from pillion_cim.schema import ClassDeclaration, Schema, load_schema
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.deliverer import DelivererMode, DelivererSpec
from pillion_sidecar.config.schema.filter import IndicationFilter, QueryLanguage
from pillion_sidecar.config.schema.service import IndicationService
from pillion_sidecar.config.schema.subscription import (
    IndicationSubscription,
    RepeatNotification,
    RepeatPolicy,
    SubscriptionState,
)
from pillion_sidecar.indication import selection_of
from pillion_sidecar.routing import Router
from support.delivery import destination, subscription


@pytest.fixture(scope="module")
def schema() -> Schema:
    return load_schema()


def alert(**values) -> CIMInstance:
    return CIMInstance("CIM_AlertIndication", values)


def router(schema: Schema, *, classes=(), **subscriptions) -> Router:
    """A router with a subscription for each (query, changes), each to a listener of its own."""
    filters = {}
    resources = {}
    for name, (query, changes) in subscriptions.items():
        filters[name] = IndicationFilter(
            name=name,
            query=query,
            query_language=QueryLanguage.WQL,
            source_namespaces=changes.pop("source_namespaces", ()),
        )
        resources[name] = subscription(name, f"to-{name}", filter_name=name, **changes)
    return Router(
        Configuration(
            revision="1",
            service=IndicationService(classes=classes),
            filters=filters,
            subscriptions=resources,
            destinations={f"to-{name}": destination(f"to-{name}") for name in resources},
        ),
        schema=schema,
    )


def routed(router: Router, instance: CIMInstance, namespace: str | None = None) -> list[str]:
    targets = router.route(instance.class_name, lambda: instance, namespace)
    return [target.subscription for target in targets]


EVERY = {
    "alerts": ("SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity = 6", {}),
    "vendors": ("SELECT * FROM HP_Alert", {}),
    "all": ("SELECT * FROM CIM_Indication", {}),
    "instances": ("SELECT * FROM CIM_InstIndication", {}),
}


def test_a_declared_class_is_routed_by_its_superclass(schema):
    declared = (ClassDeclaration("HP_Alert", "CIM_AlertIndication"),)
    routes = router(schema, classes=declared, **EVERY)
    assert routes.schema.get("HP_Alert") is not None
    for name in ("HP_Alert", "hp_alert"):
        found = routed(routes, CIMInstance(name, {"PerceivedSeverity": 6}))
        assert found == ["alerts", "vendors", "all"]


def test_an_undeclared_class_is_routed_by_the_superclass_that_its_line_names(schema):
    routes = router(schema, **EVERY)

    def line(class_name, superclass=None):
        instance = CIMInstance(class_name, {"PerceivedSeverity": 6}, superclass=superclass)
        return routed(routes, instance)

    for _ in range(2):
        assert line("HP_Alert", "CIM_AlertIndication") == ["alerts", "vendors", "all"]
        assert line("HP_Alert") == ["vendors", "all"]
        assert line("HP_Alert", "CIM_InstCreation") == ["vendors", "all", "instances"]
        assert line("ZZ_Alert", "cim_alertindication") == ["alerts", "all"]
        assert line("ZZ_Alert", "HP_Alert") == ["vendors", "all"]
        assert line("ZZ_Alert", "ZZ_Unknown") == ["all"]
    # The service knows better.
    assert routed(routes, CIMInstance("CIM_InstRead", superclass="HP_Alert")) == [
        "all",
        "instances",
    ]


def test_routes_of_undeclared_classes_take_bounded_memory(schema):
    routes = router(schema, **EVERY)
    for number in range(5_000):
        found = routed(routes, CIMInstance(f"ZZ_{number}", superclass=f"YY_{number}"))
        assert found == ["all"]
    assert len(routes._undeclared) == 1


def test_a_subscription_to_a_class_gets_its_subclasses_and_no_others(schema):
    routes = router(
        schema,
        alerts=("SELECT * FROM CIM_AlertIndication", {}),
        all=("SELECT * FROM CIM_Indication", {}),
        instances=("SELECT * FROM CIM_InstIndication", {}),
    )
    assert routed(routes, alert()) == ["alerts", "all"]
    assert routed(routes, CIMInstance("CIM_ThresholdIndication")) == ["alerts", "all"]
    assert routed(routes, CIMInstance("CIM_InstCreation")) == ["all", "instances"]


def test_a_condition_must_be_true_and_not_merely_unknown(schema):
    routes = router(
        schema,
        severe=("SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity >= 5", {}),
        other=("SELECT * FROM CIM_AlertIndication WHERE NOT PerceivedSeverity >= 5", {}),
    )
    assert routed(routes, alert(PerceivedSeverity=6)) == ["severe"]
    assert routed(routes, alert(PerceivedSeverity=2)) == ["other"]
    assert routed(routes, alert()) == []


def test_the_instance_is_not_decoded_where_the_class_decides(schema):
    routes = router(schema, all=("SELECT * FROM CIM_Indication", {}))

    def undecodable() -> CIMInstance:
        raise AssertionError("decoded")

    assert len(routes.route("CIM_AlertIndication", undecodable, None)) == 1


def test_the_instance_is_decoded_once_for_all_conditions(schema):
    query = "SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity = 6"
    routes = router(schema, one=(query, {}), two=(query, {}))
    decoded = []

    def instance() -> CIMInstance:
        decoded.append(1)
        return alert(PerceivedSeverity=6)

    assert len(routes.route("CIM_AlertIndication", instance, None)) == 2
    assert len(decoded) == 1


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("root/cimv2", ["some", "any"]),
        ("ROOT/CIMv2", ["some", "any"]),
        ("x", ["any"]),
        (None, ["any"]),
    ],
)
def test_source_namespaces_select_without_regard_to_case(schema, namespace, expected):
    query = "SELECT * FROM CIM_AlertIndication"
    routes = router(schema, some=(query, {"source_namespaces": ("root/cimv2",)}), any=(query, {}))
    assert routed(routes, alert(), namespace) == expected


def test_a_target_carries_filter_and_destination(schema):
    routes = router(schema, all=("SELECT * FROM CIM_Indication", {}))
    (target,) = routes.route("CIM_AlertIndication", alert, None)
    assert (target.filter_name, target.destination) == ("all", "to-all")


def test_repeats_are_told_by_class_and_key(schema):
    repeat = RepeatNotification(
        policy=RepeatPolicy.SUPPRESS, interval_seconds=60.0, key=("EventID",)
    )
    query = "SELECT * FROM CIM_AlertIndication"
    routes = router(schema, all=(query, {"repeat_notification": repeat}))

    def event(instance: CIMInstance) -> object:
        (target,) = routes.route(instance.class_name, lambda: instance, None)
        return target.event

    first = event(alert(EventID="disk", Description="one"))
    assert first == event(alert(EventID="disk", Description="two"))
    assert first != event(alert(EventID="fan"))
    assert first != event(CIMInstance("CIM_ThresholdIndication", {"EventID": "disk"}))


def test_a_class_that_no_schema_knows_is_routed_by_its_name_and_not_remembered(schema):
    routes = router(schema, mine=("SELECT * FROM ACME_Alert", {}))
    assert routed(routes, CIMInstance("ACME_Alert")) == ["mine"]
    assert routed(routes, CIMInstance("ACME_Other")) == []
    assert not routes._by_class


CONDITIONS = [
    "EventID = 'gust'",
    "EventID = 'fog' AND PerceivedSeverity >= 5",
    "PerceivedSeverity = 5",
    "3 = PerceivedSeverity AND NOT EventID = 'gust'",
    "EventID = 'gust' OR PerceivedSeverity = 5",
    "NOT EventID = 'gust'",
    "EventID IS NULL",
]


@given(
    values=st.fixed_dictionaries(
        {},
        optional={
            "EventID": st.sampled_from(["gust", "fog", "Gust", "", None, 5, True]),
            "PerceivedSeverity": st.sampled_from([3, 5, 5.0, "5", True, None]),
            "eventid": st.sampled_from(["gust", "fog"]),
        },
    )
)
def test_what_is_looked_up_is_what_evaluating_each_condition_gives(schema, values):
    queries = [f"SELECT * FROM CIM_AlertIndication WHERE {condition}" for condition in CONDITIONS]
    names = {f"s{number}": (query, {}) for number, query in enumerate(queries)}
    instance = alert(**values)

    evaluated = [
        name
        for name, (query, _) in names.items()
        if compile_filter(query, language="WQL", schema=schema).matches(instance)
    ]

    assert routed(router(schema, **names), instance) == evaluated


def test_a_condition_that_demands_another_value_is_not_evaluated(schema, monkeypatch):
    routes = router(
        schema,
        **{
            f"s{number}": (f"SELECT * FROM CIM_AlertIndication WHERE EventID = '{number}'", {})
            for number in range(32)
        },
    )
    evaluated = []
    monkeypatch.setattr(Filter, "condition", lambda *of: evaluated.append(of) or True)

    assert routed(routes, alert(EventID="7")) == ["s7"]
    assert len(evaluated) == 1


# ---------------------------------------------------------------------- relayed


def gateway(schema: Schema, *subscriptions: IndicationSubscription) -> Router:
    """The router of a gateway that these are relayed to."""
    nothing = IndicationFilter(
        name="nothing",
        query="SELECT * FROM CIM_InstDeletion",
        query_language=QueryLanguage.WQL,
    )
    return Router(
        Configuration(
            revision="1",
            service=IndicationService(deliverer=DelivererSpec(mode=DelivererMode.GATEWAY)),
            filters={"nothing": nothing},
            relayed={one.name: one for one in subscriptions},
            destinations={"ops": destination("ops")},
        ),
        schema=schema,
    )


def test_what_is_relayed_goes_by_the_subscriptions_uid_alone(schema):
    routes = gateway(schema, subscription("far", "ops", filter_name="nothing"))
    assert routes.takes_relayed

    def instance() -> CIMInstance:
        raise AssertionError("the instance is not needed")

    target = routes.relayed("uid-far", instance)
    assert target is not None
    assert (target.subscription, target.destination, target.event) == ("far", "ops", None)
    assert routes.relayed("far", instance) is None
    assert (routes.knows("uid-far"), routes.knows("far")) == (True, False)
    # Nor is anything else routed to it.
    assert routed(routes, CIMInstance("CIM_InstDeletion")) == []


def test_what_is_disabled_here_is_not_known_to_be_relayed(schema):
    disabled = subscription("far", "ops", filter_name="nothing", state=SubscriptionState.DISABLED)
    assert gateway(schema, disabled).relayed("uid-far", alert) is None
    assert not gateway(schema, disabled).knows("uid-far")


def test_what_makes_relayed_indications_repeats_is_worked_out_at_the_gateway(schema):
    repeat = RepeatNotification(policy=RepeatPolicy.SUPPRESS, key=("EventID",))
    routes = gateway(
        schema, subscription("far", "ops", filter_name="nothing", repeat_notification=repeat)
    )
    events = [routes.relayed("uid-far", lambda i=i: alert(EventID=i)).event for i in "aab"]
    assert events[0] == events[1] != events[2]


def test_a_sidecar_is_no_gateway(schema):
    assert not router(schema).takes_relayed


def test_the_lists_of_filters_are_told_by_the_filters_names(schema: Schema) -> None:
    routes = router(
        schema,
        some=("SELECT eventid, Message FROM CIM_AlertIndication", {}),
        all=("SELECT * FROM CIM_AlertIndication", {}),
    )
    assert routes.selections == {"some": selection_of(["EventID", "Message"])}
    assert routed(routes, alert(EventID="a")) == ["some", "all"]
