"""CIM values and documents for tests: strategies, and what real peers have sent."""

from datetime import timedelta, timezone

from hypothesis import strategies as st

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.model import (
    INTEGER_RANGES,
    CIMInstance,
    CIMInstanceName,
    CIMScalar,
    CIMType,
    EmbeddedObject,
    PropertyType,
)

ALERT = {"AlertType": 5, "PerceivedSeverity": 3, "ProbableCause": 52}

#: The headers of an export request, as an exporter of ours or of others sends them.
REQUEST_HEADERS = {
    "Content-Type": "application/xml; charset=utf-8",
    "CIMExport": "MethodRequest",
    "CIMExportMethod": "ExportIndication",
}


def interval(length: timedelta) -> CIMDateTime:
    minutes, seconds = divmod(length.seconds, 60)
    clock = f"{minutes // 60:02d}{minutes % 60:02d}{seconds:02d}"
    return CIMDateTime(f"{length.days:08d}{clock}.{length.microseconds:06d}:000")


_ILLEGAL = "".join(map(chr, (*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF)))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=_ILLEGAL), max_size=30)
names = st.from_regex(r"[A-Za-z_][0-9A-Za-z_]{0,20}", fullmatch=True)
offsets = st.integers(-999, 999).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(timezones=offsets)
datetimes = st.one_of(
    moments.map(CIMDateTime.from_datetime),
    st.timedeltas(min_value=timedelta(), max_value=timedelta(days=99_999_999)).map(interval),
    st.sampled_from(["2026112113****.******+000", "00000001******.******:000"]).map(CIMDateTime),
)
keys = st.one_of(
    texts,
    st.booleans(),
    st.integers(-(2**63), 2**64),
    st.floats(allow_nan=False, allow_infinity=False),
)


@st.composite
def references(draw: st.DrawFn, depth: int = 1) -> CIMInstanceName:
    """An instance path, perhaps with a path as a key."""
    found: dict[str, str | bool | int | float | CIMInstanceName] = {}
    found.update(draw(st.dictionaries(names, keys, max_size=3)))
    if depth and draw(st.booleans()):
        found["Inner"] = draw(references(depth=depth - 1))
    host, namespace = draw(
        st.sampled_from([(None, None), (None, "root/cimv2"), ("host.example:5989", "interop")])
    )
    return CIMInstanceName(draw(names), found, namespace, host)


def scalars(property_type: PropertyType, depth: int) -> st.SearchStrategy[CIMScalar]:
    """Values of a type, NaN excepted: it does not equal itself."""
    cim_type = property_type.cim_type
    if property_type.embedded is not None:
        return instances(depth=depth - 1)
    if cim_type in INTEGER_RANGES:
        return st.integers(*INTEGER_RANGES[cim_type])
    by_type: dict[CIMType, st.SearchStrategy[CIMScalar]] = {
        CIMType.BOOLEAN: st.booleans(),
        CIMType.STRING: texts,
        CIMType.CHAR16: texts.filter(lambda text: len(text) == 1 and text <= "\uffff"),
        CIMType.REAL32: st.floats(width=32, allow_nan=False),
        CIMType.REAL64: st.floats(allow_nan=False),
        CIMType.DATETIME: datetimes,
        CIMType.REFERENCE: references(),
    }
    return by_type[cim_type]


@st.composite
def property_types(draw: st.DrawFn, depth: int) -> PropertyType:
    """Any type that a property can have."""
    if depth and draw(st.integers(0, 4)) == 0:
        kind = draw(st.sampled_from(EmbeddedObject))
        return PropertyType(CIMType.STRING, draw(st.booleans()), kind)
    cim_type = draw(st.sampled_from(CIMType))
    return PropertyType(cim_type, cim_type is not CIMType.REFERENCE and draw(st.booleans()))


@st.composite
def instances(draw: st.DrawFn, depth: int = 2) -> CIMInstance:
    """Instances of a class that no schema knows, with properties of every type."""
    values, types = {}, {}
    by_name = st.lists(names, max_size=5, unique_by=str.casefold)
    for name in draw(by_name):
        types[name] = draw(property_types(depth))
        one = st.none() | scalars(types[name], depth)
        many = st.none() | st.lists(one, max_size=3).map(tuple)
        values[name] = draw(many if types[name].is_array else one)
    return CIMInstance("Acme_" + draw(names), values, types)
