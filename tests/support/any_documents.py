"""Random documents: what the CRDs admit, and what is nearly so, made from the schema."""

import base64
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from pillion_sidecar.config.schema import API_VERSION, KINDS
from pillion_sidecar.fields import Kind
from support.resource_cases import CASES
from support.resource_values import ODD, TEXTS, URL_PIECES, nearly
from support.resources import JSON

#: Few names, so that references find something now and then.
NAMES = ("default", "d", "f", "s", "shared", "ca", "account")
HOSTS = st.one_of(
    st.sampled_from([piece for piece in URL_PIECES if piece.startswith("[")]),
    st.from_regex(r"\[[0-9a-f:.]{0,12}\]", fullmatch=True),
    st.from_regex(r"[0-9a-zA-Z.x_-]{1,16}", fullmatch=True),
)
URLS = st.builds("{}://{}{}/".format, st.sampled_from(["http", "https"]), HOSTS, st.just(":80"))
QUERIES = st.builds(
    "SELECT * FROM {} WHERE {}".format,
    st.sampled_from(["CIM_AlertIndication", "CIM_Indication", "X_Y", "1"]),
    st.lists(
        st.sampled_from(
            ["A", "=", "1", "'x'", "(", ")", "AND", "NOT", "LIKE", "ISA", "IS NULL", "[", "9" * 400]
        ),
        max_size=8,
    ).map(" ".join),
)


def _good(kind: Kind) -> list[JSON]:
    """Specs without a flaw."""
    specs = [dict(case.mended) for case in CASES if case.kind == kind.name and not case.before]
    references = {"filterRef": {"name": "f"}, "destinationRef": {"name": "d"}}
    return [*specs, references] if kind.name == "IndicationSubscription" else specs


@st.composite
def resources(draw: st.DrawFn) -> JSON:
    """One resource of pillion.dev."""
    kind = draw(st.sampled_from(KINDS))
    spec = draw(nearly(kind.spec, _good(kind)))
    if kind.name == "ListenerDestination" and draw(st.booleans()):
        spec["destination"] = draw(URLS)
    if kind.name == "IndicationFilter" and draw(st.booleans()):
        spec["query"] = draw(QUERIES)
    metadata: JSON = {"name": draw(st.sampled_from(NAMES))}
    if draw(st.integers(0, 9)) == 0:
        field = draw(st.sampled_from(["name", "namespace", "uid", "creationTimestamp", "labels"]))
        metadata[field] = draw(st.one_of(TEXTS, ODD))
    return {"apiVersion": API_VERSION, "kind": kind.name, "metadata": metadata, "spec": spec}


@st.composite
def secrets(draw: st.DrawFn) -> JSON:
    """One Secret, whose data is anything."""
    keys = st.sampled_from(["token", "ca.crt", "tls.crt", "tls.key", "username", "password"])
    content = st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]),
        st.sampled_from([b"-----BEGIN PRIVATE KEY-----\n", b"\xc3\xa9", b"a\r\nHost: b"]),
    )
    data: Mapping[str, Any] = draw(
        st.dictionaries(keys, content.map(lambda found: base64.b64encode(found).decode()))
    )
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": draw(st.sampled_from(NAMES)),
            "labels": draw(st.sampled_from([{"pillion.dev/credentials": "true"}, {}])),
        },
        draw(st.sampled_from(["data", "stringData"])): draw(st.one_of(st.just(data), ODD)),
    }


#: Anything that JSON can say.
ANYTHING = st.recursive(
    st.one_of(ODD, TEXTS),
    lambda below: st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(
            st.sampled_from(["apiVersion", "kind", "metadata", "spec", "items", "name"]), below
        ),
    ),
    max_leaves=8,
)
DOCUMENTS = st.lists(
    st.one_of(resources(), resources(), resources(), secrets(), ANYTHING), max_size=6
)
