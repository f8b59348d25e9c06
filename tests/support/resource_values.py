"""Random values for the schema: of the right types, or nearly so."""

from typing import Any

from hypothesis import strategies as st

from pillion_sidecar.fields import (
    Boolean,
    FieldType,
    Integer,
    ListOf,
    MapOf,
    Number,
    Quantity,
    Struct,
    Text,
)

URL_PIECES = [
    *("http://", "https://", "HTTP://", "hTTps://", "ftp://", "http:/", "//", "http:"),
    *("host", "a.b-c_d", "localhost", "127.0.0.1", "127.1", "[::1]", "[fe80::1%25eth0]", "[", "]"),
    *(":", ":0", ":80", ":65535", ":65536", ":99999", ":080", ":x", "@", "user:pw@", "%40"),
    *("/", "/path", "?q=@", "#", "#f", " ", "\n", "ü", "\\", "\t", "'", '"', "LOCALHOST"),
]
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.from_regex(r"[a-z0-9.\-/_:A-Z]{1,12}", fullmatch=True),
    st.lists(st.sampled_from(URL_PIECES), max_size=7).map("".join),
)
QUANTITIES = [
    1,
    2,
    2048,
    "1",
    "1.5",
    "0.5",
    "500m",
    "1500m",
    "1Ki",
    "1k",
    "1e3",
    "1E3",
    "1E",
    ".1G",
]
#: What is never right, or right in few places only.
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 2),
    st.sampled_from([10**9, 2**63 - 1, 2**63, 10**20, -(2**63), 0.5, 3.0, -0.0, 1e20]),
    st.sampled_from(["", "0", "-1", "1 Gi", "0.0m", "Ki", "x" * 65, "x" * 254, "x" * 9000]),
    st.builds(list),
    st.builds(dict),
    st.lists(st.sampled_from(["a", 1, None]), max_size=3),
    st.dictionaries(st.sampled_from(["name", "x", "a/b"]), st.sampled_from(["a", 1, None])),
)


def values(kind: FieldType) -> st.SearchStrategy[Any]:
    """Values of the right types, rules apart."""
    match kind:
        case Text(values=known) if known:
            return st.sampled_from(known)
        case Text():
            return TEXTS
        case Integer():
            # Few numbers, so that comparisons are equal now and then.
            return st.integers(kind.minimum, kind.minimum + 3)
        case Number():
            return st.sampled_from([kind.minimum, 0.5, 3, kind.maximum])
        case Boolean():
            return st.booleans()
        case Quantity():
            return st.sampled_from(QUANTITIES)
        case ListOf():
            return st.lists(values(kind.item), max_size=2)
        case MapOf():
            return st.dictionaries(TEXTS, values(kind.value), max_size=2)
        case Struct():
            required = {field.name: values(field.type) for field in kind.fields if field.required}
            optional = {
                field.name: values(field.type) for field in kind.fields if not field.required
            }
            return st.fixed_dictionaries(required, optional=optional)


@st.composite
def nearly(draw: st.DrawFn, kind: Struct, good: list[dict[str, Any]]) -> Any:
    """One of ``good`` specs in which a few fields, at any depth, were given other values."""
    spec = _copy(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(0, 2))):
        _change(draw, kind, spec)
    return spec


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _change(draw: st.DrawFn, kind: Struct, value: dict[str, Any]) -> None:
    field = draw(st.sampled_from(kind.fields))
    below = value.get(field.name)
    if isinstance(field.type, Struct) and isinstance(below, dict) and draw(st.booleans()):
        _change(draw, field.type, below)
    elif draw(st.integers(0, 9)) == 0:
        value[draw(st.sampled_from(["x", "Destination", "status"]))] = 1
    elif draw(st.integers(0, 4)) == 0:
        value.pop(field.name, None)
    else:
        value[field.name] = draw(st.one_of(values(field.type), values(field.type), ODD))
