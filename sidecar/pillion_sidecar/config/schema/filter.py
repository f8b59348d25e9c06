from enum import StrEnum

from pillion_cim.filters import MAX_QUERY_LENGTH
from pillion_sidecar.config.schema.status import AGE, READY, REASON, status
from pillion_sidecar.fields import (
    Column,
    Kind,
    ListOf,
    Text,
    declared,
    resource,
    structure,
    text_matching,
)

_NAMESPACE = text_matching(
    "[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*",
    max_length=256,
    message="is not the name of a CIM namespace",
    remedy="Write names joined by /, such as root/cimv2.",
)


class QueryLanguage(StrEnum):
    WQL = "WQL"
    CQL = "DMTF:CQL"


@resource
class IndicationFilter:
    """After CIM_IndicationFilter. The query is valid."""

    name: str
    query: str = declared(
        type=Text(min_length=1, max_length=MAX_QUERY_LENGTH),
        description="The query, such as SELECT * FROM CIM_AlertIndication WHERE "
        "PerceivedSeverity >= 5. The filter selects an indication only if the query "
        "is true, not if it is unknown because a property is missing. A list of properties "
        "instead of * selects what is delivered.",
    )
    query_language: QueryLanguage = declared(
        default=QueryLanguage.CQL,
        description="The language of the query: DMTF:CQL (DSP0202) or WQL.",
    )
    source_namespaces: tuple[str, ...] = declared(
        default=(),
        type=ListOf(item=_NAMESPACE, max_items=64),
        assumed="every namespace",
        description="The CIM namespaces (not those of Kubernetes) that indications must come from, "
        "such as root/cimv2. Empty: any.",
    )


INDICATION_FILTER = Kind(
    name="IndicationFilter",
    plural="indicationfilters",
    short_name="indfilter",
    description="A selection of indications, after CIM_IndicationFilter: a query over their "
    "classes and properties. A filter does nothing until a subscription names it.",
    spec_description="The query and the namespaces that it covers.",
    spec=structure(IndicationFilter),
    status=status("IndicationFilter"),
    columns=(
        READY,
        REASON,
        Column("Query", ".spec.query", "The query."),
        Column("Language", ".spec.queryLanguage", "The language of the query.", priority=1),
        AGE,
    ),
)
