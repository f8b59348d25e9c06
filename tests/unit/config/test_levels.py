"""Which level of the schema a field belongs to: every field that is not the first release's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import generate_definitions as crd
from pillion_sidecar.config.levels import (
    ADDED,
    FIRST_LEVEL,
    FIRST_OF_KIND,
    LEVEL,
    suspends,
    without_newer,
)
from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.config.schema.destination import WITHHELD_URL

#: ``KIND PATH`` of each field of ``spec`` in the first release (commit d029342).
FIRST_RELEASE = Path(__file__).with_name("first_release_fields.txt").read_text().splitlines()
#: Never in a configuration: see ``pillion_operator.evaluation.namespace``.
FOR_THE_OPERATOR = ("IndicationService deliverer",)
WQL = {"queryLanguage": "WQL"}


def fields(node: dict[str, Any], path: str) -> Iterator[str]:
    for name, below in node.get("properties", {}).items():
        yield f"{path}{name}"
        yield from fields(below, f"{path}{name}.")
        yield from fields(below.get("items", {}), f"{path}{name}[].")


def of_now() -> Iterator[str]:
    for kind in KINDS:
        version = crd.definition(kind)["spec"]["versions"][0]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        yield from (f"{kind.name} {path}" for path in fields(spec, ""))


def test_each_field_is_of_the_first_release_or_of_a_level() -> None:
    added = tuple(
        f"{kind} {'.'.join(path)}"
        for kinds in ADDED.values()
        for kind, paths in kinds.items()
        for path in paths
    )
    new = [
        field
        for field in of_now()
        if field not in FIRST_RELEASE
        and not field.startswith((*added, *FOR_THE_OPERATOR))
        and field.split()[0] not in FIRST_OF_KIND
    ]
    assert new == [], "add them to config.levels"


def test_no_field_of_the_first_release_is_gone() -> None:
    assert set(FIRST_RELEASE) <= set(of_now())


@pytest.mark.parametrize(
    ("kind", "spec", "left", "fields"),
    [
        (
            "IndicationService",
            {"classes": [{"name": "A"}], "mof": "x", "queueSize": 5},
            {"queueSize": 5},
            ("spec.classes", "spec.mof"),
        ),
        (
            "ListenerDestination",
            {"tls": {"allowCommonName": True, "serverName": "a"}},
            {"tls": {"serverName": "a"}},
            ("spec.tls.allowCommonName",),
        ),
        ("ListenerDestination", {"protocol": "CIM-XML"}, {"protocol": "CIM-XML"}, ()),
        (
            "ListenerDestination",
            {"protocol": "CIM-XML", "destinationFrom": {"secretKeyRef": {"name": "a"}}},
            {"protocol": "CIM-XML", "destination": WITHHELD_URL, "suspended": True},
            ("spec.destinationFrom",),
        ),
        (
            "ListenerDestination",
            {"protocol": "Plugin", "destination": "plugin://pager/a", "queueSize": 5},
            {
                "protocol": "CIM-XML",
                "destination": WITHHELD_URL,
                "suspended": True,
                "queueSize": 5,
            },
            ("spec.protocol", "spec.destination", "spec.suspended"),
        ),
        (
            "ListenerDestination",
            {"protocol": "CloudEvents", "cloudEvents": {"maxBatch": 9}},
            {"protocol": "CloudEvents"},
            ("spec.cloudEvents",),
        ),
        (
            "ListenerDestination",
            {"protocol": "CIM-XML", "credentials": {"oauth2": {"tokenURL": "https://a/"}}},
            {"protocol": "CIM-XML", "suspended": True},
            ("spec.credentials.oauth2",),
        ),
        (
            "ListenerDestination",
            {"protocol": "CIM-XML", "proxy": {"url": "http://proxy"}},
            {"protocol": "CIM-XML", "suspended": True},
            ("spec.proxy",),
        ),
        ("ListenerDestination", {"protocol": "CIM-XML", "proxy": {}}, {"protocol": "CIM-XML"}, ()),
        (
            "IndicationService",
            {"proxy": {"url": "http://proxy"}},
            {},
            ("spec.proxy",),
        ),
        (
            "IndicationSubscription",
            {"failureTriggerTimeIntervalSeconds": 60, "onFatalErrorPolicy": "Remove"},
            {"onFatalErrorPolicy": "Ignore"},
            ("spec.failureTriggerTimeIntervalSeconds", "spec.onFatalErrorPolicy"),
        ),
        (
            "IndicationSubscription",
            {"failureTriggerTimeIntervalSeconds": 60},
            {"onFatalErrorPolicy": "Ignore"},
            ("spec.failureTriggerTimeIntervalSeconds",),
        ),
        (
            "ListenerDestination",
            {"deadLetterRef": {"name": "b"}, "removalPolicy": "DeadLetter"},
            {"removalPolicy": "Discard"},
            ("spec.deadLetterRef", "removalPolicy DeadLetter"),
        ),
        (
            "IndicationService",
            {"stores": {"groups": []}, "acknowledgement": "Stable"},
            {"acknowledgement": "Durable"},
            ("spec.stores", "acknowledgement Stable"),
        ),
        (
            "IndicationService",
            {"acknowledgement": "Delivered"},
            {"acknowledgement": "Delivered"},
            (),
        ),
        (
            "IndicationService",
            {"deadLetterRef": {"name": "b"}},
            {},
            ("spec.deadLetterRef",),
        ),
        ("IndicationFilter", {"query": "q"}, {"query": "q"}, ()),
        (
            "IndicationFilter",
            {"query": "SELECT * FROM CIM_AlertIndication"},
            {"query": "SELECT * FROM CIM_AlertIndication"},
            (),
        ),
        (
            "IndicationFilter",
            {"query": "SELECT EventID, Message FROM CIM_AlertIndication a WHERE a.AlertType = 5"},
            {"query": "SELECT * FROM CIM_AlertIndication a WHERE a.AlertType = 5"},
            ("the list of properties in spec.query",),
        ),
        (
            "IndicationFilter",
            {"query": 'SELECT EventID FROM CIM_AlertIndication WHERE EventID = "a"', **WQL},
            {"query": 'SELECT * FROM CIM_AlertIndication WHERE EventID = "a"', **WQL},
            ("the list of properties in spec.query",),
        ),
    ],
)
def test_what_the_first_release_does_not_know_is_left_out(
    kind: str, spec: dict[str, Any], left: dict[str, Any], fields: tuple[str, ...]
) -> None:
    resource = {"kind": kind, "metadata": {"name": "a"}, "spec": spec}
    found, left_out = without_newer(resource, level=FIRST_LEVEL)
    assert (found, left_out) == ({**resource, "spec": left}, fields)
    assert without_newer(resource, level=LEVEL) == (resource, ())
    assert suspends(kind, left_out) is ("suspended" in left)
