"""The usual line in one pass of a compiled decoder. The result equals that of
:func:`decoding.decode_object`, or is None: then the complete decoder decides. Embedded instances,
reals, stated types, other spellings and escaped control characters are left to it."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Required, TypedDict, Union

import msgspec

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.model import INTEGER_RANGES, CIMInstance, CIMType, CIMValue, PropertyType
from pillion_cim.schema import CIMClass, Schema
from pillion_sidecar.intake.decoding import (
    ENVELOPE,
    GREATEST_SEQUENCE,
    MEMBERSHIP,
    OF_A_DELIVERY,
    Decoded,
    parse_expires,
    parse_member,
)

#: Points in time without asterisks, on days that exist in every year.
_DATETIME = re.compile(
    r"[0-9]{4}(?:02(?:0[1-9]|1[0-9]|2[0-8])|(?:0[469]|11)(?:0[1-9]|[12][0-9]|30)"
    r"|(?:0[13578]|1[02])(?:0[1-9]|[12][0-9]|3[01]))"
    r"(?:[01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]\.[0-9]{6}[+-][0-9]{3}"
).fullmatch
#: Escapes that may stand for a character that XML cannot carry.
_SUSPECT = re.compile(rb"\\[bfu]")
#: U+FFFE and U+FFFF, which XML cannot carry either.
_NONCHARACTERS = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")
#: The compiled decoder's constraints are signed 64-bit integers.
_GREATEST = (1 << 63) - 1


class FastPath:
    def __init__(self, schema: Schema) -> None:
        """Compile a decoder for the classes of ``schema``: some milliseconds."""
        self._classes: dict[type, _FastClass] = {}
        for known in schema:
            if not known.abstract:
                found = _FastClass(known)
                self._classes[found.line] = found
        union: Any = Union[tuple(self._classes)]  # noqa: UP007
        self._decode = msgspec.json.Decoder(union).decode
        self._decode_raw = msgspec.json.Decoder(_RawProperties).decode

    def decode(self, line: bytes) -> Decoded | None:
        """Return None if the complete decoder must see the line. Raises :class:`LineError` for an
        invalid ``expires`` or place in a group."""
        try:
            parsed = self._decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        if b"\\" in line and _SUSPECT.search(line) is not None:
            return None
        if not line.isascii() and any(bad in line for bad in _NONCHARACTERS):
            return None
        # Handlers splice the body: it begins and ends with its braces.
        line = line.strip()
        values = parsed.properties
        found = self._classes[type(parsed)]
        # A pattern of the compiled decoder costs as much as all the rest of a line.
        for name in found.datetimes:
            text = values.get(name)
            if text is not None and _DATETIME(text) is None:
                return None
        # The decoder ignores unknown members and takes the last of duplicates. An object has one
        # colon per member, so equal counts prove that there is neither.
        if line.count(b":") != 2 + len(values):
            return self._decode_unusual(line, parsed, found)
        return Decoded(
            line,
            found.name,
            _Instance(found, values),
            values.get("IndicationIdentifier") or None,
        )

    def _decode_unusual(self, line: bytes, parsed: Any, found: "_FastClass") -> Decoded | None:
        """Decode a line with members beside the two, or with colons in its text."""
        values = parsed.properties
        given = [value for name in ENVELOPE if (value := getattr(parsed, name)) is not None]
        # In text a quote is escaped, so ``":`` there can only make the count too high; space before
        # a colon makes it too low.
        more = line.count(b'":') - 2 - len(values) - len(given)
        membership = membership_of(parsed) if more else {}
        if len(membership) != more or _space_before_colon(line):
            return None
        if not given and not membership:
            body = line
        elif "" in given:
            return None
        else:
            raw = bytes(self._decode_raw(line).properties)
            body = b'{"class":"%b","properties":%b}' % (found.name_bytes, raw)
        expires = None if parsed.expires is None else parse_expires(parsed.expires)
        return Decoded(
            body,
            found.name,
            _Instance(found, values),
            values.get("IndicationIdentifier") or None,
            parsed.source,
            parsed.sourceNamespace,
            parsed.group,
            expires,
            None,
            parse_member(membership, group=parsed.group, source=parsed.source, expires=expires)
            if membership
            else None,
        )


MEMBERSHIP_TYPES: Mapping[str, Any] = {
    "sequence": Annotated[int, msgspec.Meta(ge=0, le=GREATEST_SEQUENCE)],
    "last": bool,
    "ordered": bool,
    "groupExpires": str,
    "groupMaxIdleSeconds": Annotated[float, msgspec.Meta(gt=0)],
}


def membership_of(parsed: Any) -> dict[str, Any]:
    return {name: value for name in MEMBERSHIP if (value := getattr(parsed, name)) is not None}


class _RawProperties(msgspec.Struct):
    properties: msgspec.Raw


class _FastClass:
    """One class: the shape of its lines, and their conversion to instances."""

    __slots__ = ("arrays", "datetimes", "line", "name", "name_bytes", "types")

    def __init__(self, known: CIMClass) -> None:
        self.name = known.name
        self.name_bytes = known.name.encode()
        self.types = known.types
        self.arrays = [name for name, declared in known.types.items() if declared.is_array]
        self.datetimes = [
            name
            for name, declared in known.types.items()
            if declared.cim_type is CIMType.DATETIME and not declared.is_array
        ]
        self.line = _line_type(known)

    def convert(self, values: Mapping[str, Any]) -> CIMInstance:
        converted: dict[str, CIMValue] = dict(values)
        for name in self.datetimes:
            text = converted.get(name)
            if isinstance(text, str):
                converted[name] = CIMDateTime.checked(text)
        for name in self.arrays:
            items: Any = converted.get(name)
            if items is not None:
                converted[name] = tuple(items)
        return CIMInstance(self.name, converted, self.types)


class _Instance(msgspec.Struct, frozen=True, gc=False):
    """An ``InstanceSource`` over the compiled decoder's result."""

    found: _FastClass
    values: dict[str, Any]

    def __call__(self) -> CIMInstance:
        return self.found.convert(self.values)


def _line_type(known: CIMClass) -> type:
    fields: dict[str, Any] = {}
    for name, declared in known.types.items():
        json_type = None if name in OF_A_DELIVERY else _json_type(declared)
        if json_type is None:
            continue
        if name in known.required:
            fields[name] = Required[json_type]
        else:
            fields[name] = Union[json_type, None]  # noqa: UP007
    typed_dict: Any = TypedDict
    return msgspec.defstruct(
        known.name,
        [
            ("properties", typed_dict(f"{known.name}Properties", fields, total=False)),
            *((name, str | None, None) for name in ENVELOPE),
            *((name, Union[MEMBERSHIP_TYPES[name], None], None) for name in MEMBERSHIP),  # noqa: UP007
        ],
        tag=known.name,
        tag_field="class",
        forbid_unknown_fields=True,
        frozen=True,
        gc=False,
    )


def _json_type(declared: PropertyType) -> Any:
    """Return the Python type to decode a property; None: left to the complete decoder."""
    cim_type = declared.cim_type
    if declared.embedded is not None:
        return None
    if declared.is_array:
        return list[str | None] if cim_type is CIMType.STRING else None
    if cim_type in INTEGER_RANGES:
        low, high = INTEGER_RANGES[cim_type]
        return Annotated[int, msgspec.Meta(ge=low, le=min(high, _GREATEST))]
    # Points in time are told from other text once a line is decoded.
    text = {CIMType.STRING, CIMType.DATETIME}
    return str if cim_type in text else {CIMType.BOOLEAN: bool}.get(cim_type)


def _space_before_colon(line: bytes) -> bool:
    # No text has a tab or the end of a line as it is, so a look for one byte is enough.
    return b" :" in line or b"\t" in line or b"\r" in line or b"\n" in line
