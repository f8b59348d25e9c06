"""The trace of what a save or micro-batch publishes (W3C Trace Context).

A task attempt records a span if its environment asks for spans by the variables of OpenTelemetry.
Without them it passes on the trace that it was given: a span's parent is then one that somebody
records. OpenTelemetry is not imported before a variable asks for it.
"""

import logging
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

PARENT, STATE = "traceparent", "tracestate"
#: The trace of whoever runs the driver.
VARIABLES = ("TRACEPARENT", "TRACESTATE")
#: Each of them asks for spans.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
SUPPORTED = "http/protobuf"
#: Characters of a state; a longer one is refused.
MOST_STATE = 512
_PARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

log = logging.getLogger("pyspark_pillion")


def parse_parent(text: str) -> str:
    """Raises ValueError."""
    if _PARENT.fullmatch(text.strip()) is None:
        raise ValueError(
            f"is {text[:80]!r}: write 00-TRACE-SPAN-FLAGS with 32, 16 and 2 hexadecimal digits in"
            " small letters (W3C Trace Context)"
        )
    return text.strip()


def parse_state(text: str) -> str:
    """Raises ValueError."""
    if len(text) > MOST_STATE or not (text.isascii() and text.isprintable()):
        raise ValueError(f"is not at most {MOST_STATE} printable ASCII characters")
    return text.strip()


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of the tasks of one save or micro-batch; pickled."""

    #: ``traceparent`` of their parent; empty: the trace begins with them.
    parent: str = ""
    state: str = ""
    #: The trace that begins with them, in all of them the same.
    identifier: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def headers(self) -> dict[str, str]:
        given = {PARENT: self.parent, STATE: self.state}
        return {name: value for name, value in given.items() if value}


def trace_of(parent: str | None, state: str | None, *, environ: Mapping[str, str]) -> Trace:
    """Return the trace of the options, else of the driver's environment."""
    if parent is not None:
        return Trace(parent, state or "")
    given = environ.get(VARIABLES[0], "")
    if not given:
        return Trace()
    try:
        found = parse_parent(given)
    except ValueError as error:
        # Another program has set it: a trace is never a reason to publish nothing.
        log.warning("%s is ignored: it %s", VARIABLES[0], error)
        return Trace()
    try:
        return Trace(found, parse_state(environ.get(VARIABLES[1], "")))
    except ValueError:
        return Trace(found)


def current_span() -> dict[str, str]:
    """Return the options of the span that this program is in; empty without one. A program that is
    in a span has imported OpenTelemetry."""
    module = sys.modules.get("opentelemetry.trace")
    if module is None:
        return {}
    context = module.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    trace, span, flags = context.trace_id, context.span_id, context.trace_flags
    state = context.trace_state.to_header()
    return Trace(f"00-{trace:032x}-{span:016x}-{flags:02x}", state[:MOST_STATE]).headers


class TaskSpan(Protocol):
    @property
    def headers(self) -> Mapping[str, str]:
        """Of each request of the task attempt."""

    def end(self, *, rows: int, error: str) -> None:
        """``rows`` were accepted; ``error`` is empty, or the class of what ended the attempt."""


@dataclass(frozen=True, slots=True)
class PassedOn:
    """No span: requests name the parent that the task was given."""

    headers: Mapping[str, str]

    def end(self, *, rows: int, error: str) -> None:
        pass


@dataclass(slots=True)
class Progress:
    headers: Mapping[str, str]
    rows: int = 0


@contextmanager
def task_span(
    trace: Trace, *, environ: Mapping[str, str], attributes: Mapping[str, str | int]
) -> Iterator[Progress]:
    """Record the span of a task attempt around a block, which sets ``rows``."""
    span = _begin(trace, environ, attributes)
    progress = Progress(span.headers)
    error = ""
    try:
        yield progress
    except BaseException as raised:
        error = type(raised).__name__
        raise
    finally:
        span.end(rows=progress.rows, error=error)


def _begin(
    trace: Trace, environ: Mapping[str, str], attributes: Mapping[str, str | int]
) -> TaskSpan:
    problem = ""
    if _asks_for_spans(environ):
        protocol = next((name for name in PROTOCOLS if environ.get(name)), "")
        if protocol and environ[protocol] != SUPPORTED:
            problem = f"{protocol} is {environ[protocol][:40]!r}: set it to {SUPPORTED}"
        else:
            try:
                from pyspark_pillion.spans import RecordedSpan

                return RecordedSpan(
                    trace.headers, identifier=trace.identifier, attributes=attributes
                )
            except ImportError:
                problem = 'install the extra otel (pip install "pillion[spark,otel]")'
            except (OSError, RuntimeError, ValueError) as error:
                problem = str(error)[:256]
    if problem:
        log.warning("no spans are recorded: %s", problem)
    return PassedOn(trace.headers)


def _asks_for_spans(environ: Mapping[str, str]) -> bool:
    disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    if disabled or environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(environ.get(name) for name in ENDPOINTS)
