"""Decoded indications, and the complete decoder for one JSON object. Usual lines take
:mod:`pillion_sidecar.intake.fast_path`, with the same result."""

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec

from pillion_cim.jsonform import InstanceError, decode_instance, encode_instance
from pillion_cim.model import ILLEGAL_IN_XML, CIMInstance
from pillion_cim.schema import Schema
from pillion_sidecar.http_errors import MOST_SHOWN, suggest
from pillion_sidecar.indication import GroupMember
from pillion_sidecar.intake import IntakeError
from pillion_sidecar.reliability.identity import identity_digest, scoped, sequence_digest
from pillion_sidecar.trace_context import TraceContext
from pillion_sidecar.wire.relay import RelayOrigin

#: Properties of a delivery, not of the indication (S0.20, D.2). Removed once here, so that handlers
#: can splice the body's bytes.
OF_A_DELIVERY = ("IndicationFilterName", "SequenceContext", "SequenceNumber")
#: Members of a line besides ``class`` and ``properties``.
ENVELOPE = ("source", "sourceNamespace", "group", "expires")
#: Members for the place in a message group (S1).
MEMBERSHIP = ("sequence", "last", "ordered", "groupExpires", "groupMaxIdleSeconds")
#: Seconds: 30 days.
MAXIMUM_GROUP_IDLE = 2_592_000
GREATEST_SEQUENCE = (1 << 63) - 2
#: Characters of source and group of a line with a ``sequence``: they are kept with the group's
#: state.
MAXIMUM_GROUP_TEXT = 1024
_KNOWN = frozenset({"class", "superclass", "properties", *ENVELOPE, *MEMBERSHIP})
_MAXIMUM_PROBLEMS_TOLD = 3
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?[0-9]*"
    r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)


class LineError(IntakeError):
    """A permanently invalid line: what is wrong, in which field."""

    def __init__(self, reason: str, *, field: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.field = field


class Decoded(msgspec.Struct, frozen=True, gc=False):
    """One valid indication."""

    #: ``{"class": …, "properties": {…}}``, one line of UTF-8.
    body: bytes
    class_name: str
    #: Returns the instance for filters; decoded on first use, unless validation needed it.
    instance: Callable[[], CIMInstance]
    #: IndicationIdentifier; None if missing or empty.
    identifier: str | None = None
    source: str | None = None
    source_namespace: str | None = None
    group: str | None = None
    #: Seconds since the epoch.
    expires: float | None = None
    #: The publisher's sequence identifier, if complete: a fallback identity.
    sequence: tuple[str, int] | None = None
    #: Its place in ``group``, if it has a ``sequence``.
    member: GroupMember | None = None
    #: Of a relayed line only, with ``relay``.
    languages: tuple[str, ...] = ()
    relay: RelayOrigin | None = None
    #: Neither its class nor a superclass is known.
    undeclared: bool = False
    #: Of a CloudEvent only.
    trace: TraceContext | None = None


def expired_field(decoded: Decoded, now: float) -> str | None:
    """Return the field by which a line has expired, or None. After its group's expiry, which is
    later than all ``expires``, a member belongs to none (S1.6). ``now``: since the epoch."""
    if decoded.expires is not None and decoded.expires <= now:
        return "expires"
    member = decoded.member
    if member is not None and member.expires is not None and member.expires <= now:
        return "groupExpires"
    return None


def digest_of(decoded: Decoded, source: str | None, namespace: str | None) -> bytes | None:
    """Return a line's identity; None without one, or if it comes from the place in a group."""
    scope = source if namespace is None else scoped(namespace, source)
    digest = identity_digest(scope, decoded.identifier)
    if digest is None and decoded.member is None and decoded.sequence is not None:
        return sequence_digest(scoped(namespace, source or ""), *decoded.sequence)
    return digest


def parse_expires(text: str, *, field: str = "expires") -> float:
    """Return an RFC 3339 time in seconds since the epoch. Raises :class:`LineError`."""
    if _RFC_3339.fullmatch(text) is not None:
        try:
            return datetime.fromisoformat(text.upper()).timestamp()
        except (ValueError, OverflowError):
            pass
    raise LineError(
        f"not an RFC 3339 time: {text[:40]!r}; write one like 2026-11-21T13:30:00Z",
        field=field,
    )


def decode_object(obj: Any, *, schema: Schema, maximum_idle: float = MAXIMUM_GROUP_IDLE) -> Decoded:
    """Decode a JSON object with its envelope. Raises :class:`LineError`."""
    if not isinstance(obj, dict):
        raise LineError('not an object; write {"class": …, "properties": {…}}')
    for name in obj:
        if name not in _KNOWN:
            raise _unknown_member(name, obj.get("class"), schema)
    envelope = {name: _text_member(obj, name) for name in ENVELOPE}
    try:
        instance = decode_instance(obj, schema=schema)
    except InstanceError as error:
        raise invalid_instance(error) from None
    expires = envelope["expires"]
    expires_at = None if expires is None else parse_expires(expires)
    membership = {name: obj[name] for name in MEMBERSHIP if name in obj}
    return decoded_instance(
        instance,
        schema=schema,
        source=envelope["source"],
        source_namespace=envelope["sourceNamespace"],
        group=envelope["group"],
        expires=expires_at,
        member=parse_member(
            membership,
            group=envelope["group"],
            source=envelope["source"],
            expires=expires_at,
            maximum_idle=maximum_idle,
        )
        if membership
        else None,
    )


def decoded_instance(
    instance: CIMInstance,
    *,
    schema: Schema,
    source: str | None = None,
    source_namespace: str | None = None,
    group: str | None = None,
    expires: float | None = None,
    member: GroupMember | None = None,
) -> Decoded:
    identifier = instance.get("IndicationIdentifier")
    context, number = instance.get("SequenceContext"), instance.get("SequenceNumber")
    instance = without_delivery_properties(instance)
    return Decoded(
        # All types that the packaged schema does not have are stated: then handlers, gateways and
        # later runs read the same, whatever is declared.
        body=msgspec.json.encode(encode_instance(instance, schema=schema.base)),
        class_name=instance.class_name,
        instance=lambda: instance,
        identifier=identifier if isinstance(identifier, str) and identifier else None,
        source=source,
        source_namespace=source_namespace,
        group=group,
        expires=expires,
        sequence=(context, number)
        if isinstance(context, str) and isinstance(number, int)
        else None,
        member=member,
        undeclared=_is_undeclared(instance, schema),
    )


def _is_undeclared(instance: CIMInstance, schema: Schema) -> bool:
    if schema.get(instance.class_name) is not None:
        return False
    return instance.superclass is None or schema.get(instance.superclass) is None


def without_delivery_properties(instance: CIMInstance) -> CIMInstance:
    dropped = {name.casefold() for name in OF_A_DELIVERY}
    if not any(name.casefold() in dropped for name in instance.values):
        return instance
    kept = {
        name: value for name, value in instance.values.items() if name.casefold() not in dropped
    }
    return CIMInstance(instance.class_name, kept, instance.types, instance.superclass)


def invalid_instance(error: InstanceError) -> LineError:
    problems = error.problems
    reason = "; ".join(str(problem) for problem in problems[:_MAXIMUM_PROBLEMS_TOLD])
    if len(problems) > _MAXIMUM_PROBLEMS_TOLD:
        reason += f"; and {len(problems) - _MAXIMUM_PROBLEMS_TOLD} more"
    return LineError(reason, field=problems[0].field if problems else None)


def parse_member(
    given: Mapping[str, Any],
    *,
    group: str | None,
    source: str | None,
    expires: float | None,
    maximum_idle: float = MAXIMUM_GROUP_IDLE,
) -> GroupMember:
    """Return a line's place in its group; ``given`` holds at least one member of ``MEMBERSHIP``.
    Raises :class:`LineError`."""
    if group is None or "sequence" not in given:
        name = next(iter(given))
        needed = "group" if name == "sequence" else "group and sequence"
        raise LineError(f"{name}: means nothing without {needed}; give it too", field=name)
    for name, text in (("group", group), ("source", source)):
        if text is not None and len(text) > MAXIMUM_GROUP_TEXT:
            raise LineError(
                f"{name}: has {len(text)} characters; with a sequence it may have at most"
                f" {MAXIMUM_GROUP_TEXT}",
                field=name,
            )
    group_expires = given.get("groupExpires")
    if "groupExpires" in given:
        group_expires = _group_expires(group_expires, expires)
    return GroupMember(
        _sequence(given["sequence"]),
        _flag(given, "last"),
        _flag(given, "ordered"),
        group_expires,
        _idle_seconds(given["groupMaxIdleSeconds"], maximum_idle)
        if "groupMaxIdleSeconds" in given
        else None,
    )


def _sequence(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= GREATEST_SEQUENCE:
        raise LineError(
            f"sequence: not an integer from 0 to {GREATEST_SEQUENCE}: {value!r:.40}",
            field="sequence",
        )
    return value


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise LineError(f"{name}: neither true nor false: {value!r:.40}", field=name)
    return value


def _group_expires(value: Any, expires: float | None) -> float:
    field = "groupExpires"
    if not isinstance(value, str):
        raise LineError(f"{field}: not an RFC 3339 time: {value!r:.40}", field=field)
    group_expires = parse_expires(value, field=field)
    if expires is not None and group_expires <= expires:
        raise LineError(f"{field}: not later than the line's expires", field=field)
    return group_expires


def _idle_seconds(value: Any, maximum: float) -> float:
    field = "groupMaxIdleSeconds"
    try:
        seconds = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        seconds = math.inf
    if not 0 < seconds < math.inf:
        raise LineError(f"{field}: not a number of seconds above 0: {value!r:.40}", field=field)
    if seconds > maximum:
        raise LineError(f"{field}: more than {maximum:g} seconds: {value!r:.40}", field=field)
    return seconds


def _unknown_member(name: str, class_name: object, schema: Schema) -> LineError:
    known = schema.get(class_name) if isinstance(class_name, str) else None
    properties = {} if known is None else {one.casefold(): one for one in known.types}
    near = get_close_matches(name[:MOST_SHOWN].casefold(), properties, n=1, cutoff=0.7)
    remedy = f"put {properties[near[0]]} into properties" if near else suggest(name, _KNOWN)
    return LineError(f"unknown member {name[:MOST_SHOWN]!r}; {remedy}", field=name[:MOST_SHOWN])


def _text_member(obj: Mapping[str, Any], name: str) -> str | None:
    value = obj.get(name)
    if value is None:
        if name in obj:
            raise LineError(f"{name}: null; leave it out, or give text", field=name)
        return None
    if not isinstance(value, str) or not value:
        raise LineError(f"{name}: not a text of at least one character", field=name)
    if ILLEGAL_IN_XML.search(value) is not None:
        raise LineError(f"{name}: has a character that XML cannot carry", field=name)
    return value


def parse_json(text: bytes, *, where: str = "", remedy: str | None = None) -> Any:
    """Parse strictly: bounded depth, no duplicate members, no NaN or Infinity, valid UTF-8. Raises
    :class:`LineError` with the position; ``where``: in what; ``remedy``: for other than lines."""
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LineError(f"not UTF-8: {error.reason} at byte {error.start}{where}") from None
    try:
        return _DECODER.decode(decoded)
    except json.JSONDecodeError as error:
        if remedy is None:
            remedy = (
                "send several lines as application/x-ndjson"
                if error.msg == "Extra data"
                else 'write one JSON object a line: {"class": NAME, "properties": {…}}'
            )
        position = f"{error.pos}{where}"
        raise LineError(f"not JSON: {error.msg} at character {position}; {remedy}") from None
    except RecursionError:
        raise LineError("nested too deep") from None
    except ValueError as error:
        # Python refuses to convert integers of thousands of digits.
        raise LineError(f"not JSON that can be taken: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise LineError(f"{name[:80]!r} is given twice in one object", field=name[:80])
            seen.add(name)
    return found


def _no_such_number(literal: str) -> float:
    raise LineError(f"{literal} is not JSON; for a real, write the text {literal[:4]!r}")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_such_number)
