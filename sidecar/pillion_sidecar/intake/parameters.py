import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pillion_cim.model import ILLEGAL_IN_XML, is_language_tag
from pillion_sidecar.config.schema.service import Acknowledgement, Durability
from pillion_sidecar.http_errors import ParameterError
from pillion_sidecar.reliability.callbacks import BadCallback, check_callback
from pillion_sidecar.trace_context import TraceContext, read_trace
from pillion_sidecar.wire.relay import REPEATED_HEADER

#: Default seconds for ``ack=delivered`` and flushes.
DEFAULT_TIMEOUT = 30.0
MAXIMUM_TEXT = 1024
#: Default and maximum faults in one answer.
DEFAULT_FAULTS = 1000
MAXIMUM_FAULTS = 10_000

#: Of a publish request, including the first release's clients.
PUBLISH_PARAMETERS = frozenset({"ack", "callback", "instance", "redeliver", "source", "timeout"})

_LEVELS = {level.value.lower(): level for level in Acknowledgement}
_MAXIMUM_LANGUAGES = 16
#: A part of what float() takes: also underscores, spaces, signs and other digits.
_SECONDS = re.compile(r"([0-9]{1,20}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,3})?")
_NUMBERS = re.compile("[0-9]{1,6}(,[0-9]{1,6})*")


@dataclass(frozen=True, slots=True)
class Parameters:
    acknowledgement: Acknowledgement
    timeout: float
    source: str | None
    publisher: str | None
    languages: tuple[str, ...]
    #: A URL that the service allows.
    callback: str | None = None
    #: ``Publisher.instance`` of an earlier answer.
    instance: str | None = None
    #: Whether duplicates are offered again to targets that missed them.
    redeliver: bool = False
    trace: TraceContext | None = None


def parse_parameters(
    query: Mapping[str, str],
    headers: Mapping[str, str],
    *,
    default: Acknowledgement,
    durability: Durability,
    has_stores: bool,
    callbacks: Sequence[str],
    maximum_wait: float,
    trace: TraceContext | None = None,
) -> Parameters:
    """Raises :class:`ParameterError`."""
    source = query.get("source")
    if source is not None and not 0 < len(source) <= MAXIMUM_TEXT:
        raise ParameterError(f"source: give 1 to {MAXIMUM_TEXT} characters")
    if source is not None and ILLEGAL_IN_XML.search(source) is not None:
        raise ParameterError("source: has a character that XML cannot carry")
    publisher = headers.get("Pillion-Publisher")
    if publisher is not None and not 0 < len(publisher) <= MAXIMUM_TEXT:
        raise ParameterError(f"Pillion-Publisher: give 1 to {MAXIMUM_TEXT} characters")
    if publisher is not None and not publisher.isascii() and not _is_unicode(publisher):
        raise ParameterError("Pillion-Publisher: is not UTF-8; send UTF-8")
    instance = query.get("instance")
    if instance is not None and publisher is None:
        raise ParameterError("instance: give Pillion-Publisher, whose instance it is")
    callback = query.get("callback")
    if callback is not None:
        try:
            check_callback(callback, callbacks)
        except BadCallback as error:
            raise ParameterError(f"callback: {error}") from None
    redeliver = query.get("redeliver", "false")
    if redeliver not in ("true", "false"):
        raise ParameterError(f"redeliver={redeliver!r:.40}: write true or false")
    return Parameters(
        acknowledgement=parse_level(
            query, name="ack", default=default, durability=durability, has_stores=has_stores
        ),
        timeout=parse_timeout(query, maximum=maximum_wait),
        source=source,
        publisher=publisher,
        languages=parse_languages(headers["Content-Language"])
        if "Content-Language" in headers
        else (),
        callback=callback,
        instance=instance,
        redeliver=redeliver == "true",
        trace=trace,
    )


class RelayMarks(NamedTuple):
    """What headers say of relayed lines, by number from 0."""

    #: Those that repeat what the sidecar had discarded.
    repeated: frozenset[int] = frozenset()
    traces: Mapping[int, TraceContext] = {}


#: Of lines that no header marks.
UNMARKED = RelayMarks()


def parse_marks(headers: Mapping[str, str], traces: Sequence[str]) -> RelayMarks:
    """``traces``: the headers of that name. Raises :class:`ParameterError`."""
    text = headers.get(REPEATED_HEADER)
    if text is not None and _NUMBERS.fullmatch(text) is None:
        raise ParameterError(f"{REPEATED_HEADER}: {text!r:.40}; give line numbers, as in 0,3,7")
    repeated = frozenset[int]() if text is None else frozenset(map(int, text.split(",")))
    of_lines: dict[int, TraceContext] = {}
    for given in traces:
        parent, _, rest = given.partition(" ")
        numbers, _, state = rest.partition(" ")
        trace = read_trace(parent, state)
        if trace is not None and _NUMBERS.fullmatch(numbers) is not None:
            of_lines.update(dict.fromkeys(map(int, numbers.split(",")), trace))
    return RelayMarks(repeated, of_lines)


def _is_unicode(text: str) -> bool:
    """False for bytes that were not UTF-8, which a header has as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_level(
    query: Mapping[str, str],
    *,
    name: str,
    default: Acknowledgement,
    durability: Durability,
    has_stores: bool,
) -> Acknowledgement:
    """Raises :class:`ParameterError`, also if this deployment cannot provide the level."""
    text = query.get(name)
    level = default if text is None else _LEVELS.get(text)
    missing = None if level is None else _missing(level, durability, has_stores)
    if level is not None and missing is None:
        return level
    durable = ", durable" if durability is Durability.DISK else ""
    stable = ", stable" if has_stores else ""
    remedy = f"use accepted{durable}{stable} or delivered"
    if level is None:
        raise ParameterError(f"{name}: {text!r:.40} is no level; {remedy}")
    raise ParameterError(f"{name}={level.value.lower()} {missing}; {remedy}")


def _missing(level: Acknowledgement, durability: Durability, has_stores: bool) -> str | None:
    if level is Acknowledgement.STABLE and not has_stores:
        return "needs stores (IndicationService.stores), which this service does not have"
    if level is Acknowledgement.DURABLE and durability is not Durability.DISK:
        return (
            "needs durability Disk (IndicationService.durability, and a journal on the deliverer's"
            f" volume), and this deliverer has {durability.value}"
        )
    return None


def parse_count(query: Mapping[str, str], *, name: str, default: int, maximum: int) -> int:
    """Return a number from 0 to ``maximum``. Raises :class:`ParameterError`."""
    text = query.get(name)
    if text is None:
        return default
    # Longer is above the maximum, and int() of a very long text is slow.
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= maximum):
        raise ParameterError(f"{name}: {text!r:.40}; give a whole number from 0 to {maximum}")
    return int(text)


def parse_timeout(query: Mapping[str, str], *, maximum: float) -> float:
    """Return ``timeout`` in seconds. Raises :class:`ParameterError`."""
    text = query.get("timeout")
    if text is None:
        return min(DEFAULT_TIMEOUT, maximum)
    seconds = float(text) if _SECONDS.fullmatch(text) else math.nan
    if not 0 <= seconds <= maximum:
        raise ParameterError(f"timeout: {text!r:.40}; give seconds from 0 to {maximum:g}")
    return seconds


def parse_languages(text: str) -> tuple[str, ...]:
    """Return the tags of a Content-Language header (S0.21). Raises :class:`ParameterError`."""
    if not text.strip():
        return ()
    tags = tuple(tag.strip() for tag in text.split(","))
    if len(tags) > _MAXIMUM_LANGUAGES or not all(map(is_language_tag, tags)):
        raise ParameterError(
            f"Content-Language: {text!r:.60}; give at most {_MAXIMUM_LANGUAGES} language tags"
        )
    return tags
