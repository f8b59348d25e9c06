"""Values whose attributes declare their fields."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest

from pillion_sidecar.config.schema import LISTENER_DESTINATION
from pillion_sidecar.config.schema.common import reference, secret_fields, secret_names
from pillion_sidecar.config.schema.destination import (
    DeliverThrough,
    DestinationFault,
    HoldCause,
    ListenerDestination,
    RetryPolicy,
)
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.config.schema.proxy import Proxy
from pillion_sidecar.config.validation import Complaints, check
from pillion_sidecar.fields import (
    Boolean,
    Field,
    Integer,
    ListOf,
    Text,
    build,
    declared,
    one_of,
    relevant,
    required,
    resource,
    structure,
)
from pillion_sidecar.protocols import BatchOptions


class Colour(StrEnum):
    RED = "Red"
    BLUE = "Blue"


@resource
class Limits:
    low_mark: float = declared(default=1.0, type=Integer(minimum=0, maximum=9), description="L.")


@resource
class Lamp:
    name: str
    colour: Colour = declared(description="C.")
    lit: bool | None = declared(default=None, description="On.", assumed="off")
    tags: tuple[str, ...] = declared(
        default=("a",), type=ListOf(item=Text(max_length=9), max_items=3), description="T."
    )
    limits: Limits = declared(default=Limits(), inline=True)
    socket: str | None = declared(
        default=None, name="socketRef", type=reference("Socket"), description="S.", assumed="none"
    )
    percent: float = declared(
        default=0.05,
        type=Integer(minimum=0, maximum=100),
        description="P.",
        convert=lambda percent: percent / 100,
        json_default=5,
    )


def fields_of(value: type) -> Mapping[str, Field]:
    return {field.name: field for field in structure(value).fields}


def test_an_attribute_says_all_of_its_field_that_it_knows() -> None:
    fields = fields_of(Lamp)
    assert list(fields) == ["colour", "lit", "tags", "lowMark", "socketRef", "percent"]
    assert fields["colour"].required
    assert fields["colour"].type == one_of(Colour)
    assert fields["lit"].type == Boolean()
    assert (fields["lit"].default, fields["lit"].assumed) == (None, "off")
    assert fields["tags"].default == ["a"]
    assert fields["lowMark"].default == 1
    assert fields["percent"].default == 5


def test_a_value_is_built_from_its_fields() -> None:
    spec = {"colour": "Blue", "tags": [], "lowMark": 4, "socketRef": {"name": "s"}, "percent": 20}
    assert build(Lamp, spec, name="n") == Lamp(
        name="n", colour=Colour.BLUE, tags=(), limits=Limits(low_mark=4.0), socket="s", percent=0.2
    )
    assert build(Lamp, {"colour": "Red"}, name="n") == Lamp(name="n", colour=Colour.RED)


DESTINATION = ListenerDestination(
    name="a", uid="u", destination="http://a.example/", protocol="CIM-XML"
)
#: Another value of each attribute that a handler of a listener is made from.
OTHERS: dict[str, Any] = {
    "destination": "http://b.example/",
    "url_is_secret": True,
    "protocol": "CloudEvents",
    "timeout_seconds": 1.0,
    "tls": TLSOptions(verify=False),
    "credentials": 1,
    "proxy": Proxy(url="http://proxy.example:3128"),
    "options": BatchOptions(max_batch=2),
    "fault": DestinationFault(HoldCause.DESTINATION, "no"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_handler_is_needed_where_what_it_reads_differs(name: str) -> None:
    assert replace(DESTINATION, **{name: OTHERS[name]}).connection != DESTINATION.connection


def test_the_queue_reads_the_rest_alone() -> None:
    changed = replace(
        DESTINATION, suspended=True, queue_size=1, retry=RetryPolicy(), max_in_flight=9
    )
    assert changed.connection == DESTINATION.connection
    known = {*OTHERS, "name", "uid", "relay_to"}
    assert set(relevant(ListenerDestination)) == known


def test_a_relay_is_made_of_its_gateway_and_of_who_ordered_it() -> None:
    relayed = replace(DESTINATION, relay_to="g")
    assert relayed.connection != DESTINATION.connection
    assert replace(relayed, **OTHERS).connection == relayed.connection
    assert replace(relayed, relay_to="h").connection != relayed.connection
    ordered = replace(relayed, deliver_through=DeliverThrough.GATEWAY)
    assert ordered.connection != relayed.connection


def test_secrets_are_found_by_the_schema() -> None:
    spec = LISTENER_DESTINATION.spec
    assert secret_fields(spec) == {"tls", "credentials", "destinationFrom", "proxy"}
    written = {
        "destinationFrom": {"secretKeyRef": {"name": "a"}},
        "tls": {"caSecretRef": {"name": "b"}, "clientCertificateSecretRef": {"name": "c"}},
        "credentials": {
            "basic": {"secretRef": {"name": "d"}},
            "bearer": {"secretRef": {}},
            "signing": {"secretRefs": [{"name": "e"}, {"name": "f"}]},
            "oauth2": {"secretRef": {"name": "g"}, "caSecretRef": {"name": "h"}},
        },
        "proxy": {"secretRef": {"name": "i"}},
        "retry": None,
    }
    assert secret_names(spec, written) == {"a", "b", "c", "d", "e", "f", "g", "h", "i"}


def test_no_text_of_a_destination_shows_its_key() -> None:
    assert "geheim" not in repr(TLSOptions(client_key=b"geheim"))


def test_two_items_of_one_name_are_refused_as_by_the_api_server() -> None:
    item = structure(required("name", Text(max_length=9), "N."))
    kind = ListOf(item=item, max_items=3, key="name")
    found: list[tuple[object, ...]] = []
    complaints = Complaints(lambda reason, path, value, message, _: found.append((path, message)))
    check(kind, [{"name": "a"}, {"name": "b"}, {"name": "a"}], ("groups",), complaints)
    assert found == [(("groups", 2, "name"), "is the name of two")]
