"""The OpenAPI document describes every answer of a running deliverer: schemathesis sends requests
made from the document, right and wrong ones, and compares what comes back.

In the copy that it is made from, an object of an answer has no member that the document does not
declare, and the deliverer's own names are among the values of the parameters.
"""

import json
import urllib.request
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from pillion_sidecar.openapi import openapi_document
from support.processes import SidecarProcess, listener_process, sidecar_process
from support.resources import JSON
from support.running import alert, listener, resources

METHODS = frozenset({"get", "post"})
PUBLISHER = "weather"
OPERATOR = "operator-token"
#: Requests to each operation, right and wrong ones.
EXAMPLES = 20
CHECKS = [
    checks.response_headers_conformance,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    schemathesis.checks.not_a_server_error,
]
#: Values that the deliverer takes, for members of a line that are seldom right otherwise.
LINE: JSON = {
    "class": {"const": "CIM_AlertIndication"},
    "superclass": {"const": "CIM_ProcessIndication"},
    "properties": {"enum": [alert(str(number))["properties"] for number in range(4, 9)]},
    "source": {"enum": ["lab", "roof"]},
    "sourceNamespace": {"const": "root/cimv2"},
    "group": {"enum": ["a", "b"]},
    "expires": {"enum": ["2100-01-01T00:00:00Z", "2020-01-01T00:00:00Z"]},
    "groupExpires": {"const": "2100-01-02T00:00:00Z"},
    "languages": {"enum": [[], ["en"]]},
    "relay": {"const": {"subscription": "s", "acceptedAt": 1, "context": "c", "number": 1}},
}
EXPORT = (
    b'<?xml version="1.0" encoding="utf-8"?><CIM CIMVERSION="2.0" DTDVERSION="2.0">'
    b'<MESSAGE ID="1" PROTOCOLVERSION="1.0"><SIMPLEEXPREQ><EXPMETHODCALL NAME="ExportIndication">'
    b'<EXPPARAMVALUE NAME="NewIndication"><INSTANCE CLASSNAME="ACME_Fan"/></EXPPARAMVALUE>'
    b"</EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>"
)


@schemathesis.serializer("application/x-ndjson")
def _lines(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    items = value if isinstance(value, list) else [value]
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


@schemathesis.serializer("application/msgpack")
def _packed(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    try:
        # What it makes of ``format: binary`` has the bytes in ``data``.
        return (
            value
            if isinstance(value, bytes)
            else msgspec.msgpack.encode(value, enc_hook=lambda one: one.data)
        )
    except (OverflowError, UnicodeEncodeError):
        # A number or a text that it cannot carry.
        return b"\xc1"


@dataclass(frozen=True)
class World:
    """A deliverer, and what it knows."""

    sidecar: SidecarProcess
    receipt: str
    instance: str
    callback: str


def _post(url: str, *documents: JSON, **headers: str) -> JSON:
    body = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
    request = urllib.request.Request(
        url, data=body, headers={"Content-Type": "application/x-ndjson", **headers}
    )
    with urllib.request.urlopen(request) as answer:
        found: JSON = json.load(answer)
    return found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("openapi")
    with listener_process(folder) as up:
        documents = resources(
            listener("up", up.url),
            listener("down", "http://127.0.0.1:1/"),
            deliverer={"mode": "Gateway"},
            callbacks=[up.url],
        )
        token = folder / "token"
        token.write_text(OPERATOR)
        options = ("--journal", str(folder / "journal"), "--operator-token-file", str(token))
        with sidecar_process(folder, *documents, options=options) as sidecar:
            publish = f"{sidecar.url}/v1/indications?ack=delivered&timeout=0"
            header = {"Pillion-Publisher": PUBLISHER}
            answer = _post(publish, alert("1"), alert("2"), alert("3"), **header)
            _post(f"{sidecar.url}/v1/queues/down/skip")
            yield World(sidecar, answer["receipt"], answer["instance"], up.url)


def _closed(schema: Any) -> None:
    """Forbid members that are not declared, in a schema and those in it."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.keys() & {"allOf", "additionalProperties"}:
            schema["additionalProperties"] = False
        for part in schema.values():
            _closed(part)
    elif isinstance(schema, list):
        for part in schema:
            _closed(part)


def _fuzzed(world: World) -> JSON:
    document = deepcopy(openapi_document())
    components = document["components"]
    for name, schema in components["schemas"].items():
        if name != "CloudEvent":
            _closed(schema)
    parameters = components["parameters"]
    parameters["Publisher"]["schema"] = {"enum": [PUBLISHER, "nobody"]}
    parameters["Source"]["schema"] = {"const": "lab"}
    parameters["PublisherHeader"] |= {"required": True, "schema": {"const": PUBLISHER}}
    parameters["Instance"]["schema"] = {"enum": [world.instance, "earlier"]}
    parameters["QueueName"]["schema"] = {"enum": ["up", "down", "nowhere"]}
    paths = document["paths"]
    for parameter in paths["/v1/outcomes"]["get"]["parameters"]:
        if parameter["name"] == "wait":
            parameter["schema"] = {"const": 0}
    paths["/v1/indications"]["post"]["parameters"][-1]["schema"] = {"const": world.callback}
    for path in ("/CIMListener", "/CIMListener/{consumer}", "/cimom", "/"):
        *_others, method, protocol = paths[path]["post"]["parameters"]
        method["required"], protocol["schema"] = True, {"const": "1.0"}
    for operation in paths["/v1/adoptions"].values():
        # Each request has the right token.
        del operation["security"]
    paths["/v1/receipts/{id}"]["get"]["parameters"][0]["schema"] = {"enum": [world.receipt, "none"]}
    for path, name in (("/v1/indications", "Indication"), ("/v1/relay", "RelayedIndication")):
        properties = components["schemas"][name]["properties"]
        properties |= {member: LINE[member] for member in LINE.keys() & properties.keys()}
        content = paths[path]["post"]["requestBody"]["content"]["application/x-ndjson"]
        lines = {"$ref": f"#/components/schemas/{name}"}
        content["schema"] = {"type": "array", "minItems": 1, "maxItems": 3, "items": lines}
    return document


def _operations() -> Iterator[tuple[str, str, GenerationMode]]:
    for path, item in openapi_document()["paths"].items():
        for method in METHODS & item.keys():
            yield path, method, GenerationMode.POSITIVE
            if item[method].keys() & {"parameters", "requestBody"}:
                yield path, method, GenerationMode.NEGATIVE


def _timeouts(case: schemathesis.Case, mode: GenerationMode) -> tuple[str, ...]:
    """The values of ``timeout`` to send: no test waits for what does not come."""
    names = {parameter.name for parameter in case.operation.query}
    if "timeout" not in names:
        return ()
    return ("0",) if mode is GenerationMode.POSITIVE else ("0", "-1", "3601", "soon")


@pytest.mark.parametrize(("path", "method", "mode"), sorted(_operations()))
def test_every_answer_is_described(
    world: World, path: str, method: str, mode: GenerationMode
) -> None:
    schemathesis.openapi.media_type(
        "application/xml", st.sampled_from([EXPORT, EXPORT[:-3]]), aliases=["text/xml"]
    )
    document = _fuzzed(world)
    operation = schemathesis.openapi.from_dict(document)[path][method.upper()]
    is_telemetry = document["paths"][path][method]["tags"] == ["Telemetry"]
    url = world.sidecar.telemetry if is_telemetry else world.sidecar.url

    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {OPERATOR}"

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode), st.data())
        def send(case: schemathesis.Case, data: st.DataObject) -> None:
            if timeouts := _timeouts(case, mode):
                case.query = {**(case.query or {}), "timeout": data.draw(st.sampled_from(timeouts))}
            response = case.call(base_url=url, session=session, timeout=30)
            case.validate_response(response, checks=CHECKS)

        send()
