"""IndicationFilter: which indications, after CIM_IndicationFilter."""

from pillion_cim.filters import MAX_QUERY_LENGTH
from pillion_sidecar.config.resources import QueryLanguage
from pillion_sidecar.config.schema.common import one_of
from pillion_sidecar.config.schema.fields import Column, Field, Kind, ListOf, Struct, Text
from pillion_sidecar.config.schema.rules import matching
from pillion_sidecar.config.schema.status import AGE, READY, REASON, status

_NAMESPACE = Text(
    min_length=1,
    max_length=256,
    rules=(
        matching(
            "[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*",
            message="is not the name of a CIM namespace",
            remedy="Write names joined by /, such as root/cimv2.",
        ),
    ),
)

INDICATION_FILTER = Kind(
    name="IndicationFilter",
    plural="indicationfilters",
    short_name="indfilter",
    description="A selection of indications, after CIM_IndicationFilter: a query over their "
    "classes and properties. A filter does nothing until a subscription names it.",
    spec_description="The query and the namespaces that it covers.",
    spec=Struct(
        fields=(
            Field(
                name="query",
                type=Text(min_length=1, max_length=MAX_QUERY_LENGTH),
                required=True,
                description="The query, such as SELECT * FROM CIM_AlertIndication WHERE "
                "PerceivedSeverity >= 5. An indication is selected where the query is true, and "
                "not where the answer is unknown because a property is missing.",
            ),
            Field(
                name="queryLanguage",
                type=one_of(QueryLanguage),
                default="DMTF:CQL",
                description="The language of the query: DMTF:CQL (DSP0202) or WQL.",
            ),
            Field(
                name="sourceNamespaces",
                type=ListOf(item=_NAMESPACE, max_items=64),
                assumed="every namespace",
                description="The CIM namespaces (not those of Kubernetes) that indications must "
                "come from, such as root/cimv2. Empty: any.",
            ),
        )
    ),
    status=status("IndicationFilter"),
    columns=(
        READY,
        REASON,
        Column(name="Query", path=".spec.query", description="The query."),
        Column(
            name="Language",
            path=".spec.queryLanguage",
            description="The language of the query.",
            priority=1,
        ),
        AGE,
    ),
)
