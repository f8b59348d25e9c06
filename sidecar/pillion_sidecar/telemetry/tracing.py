"""Whether this deliverer records spans. The variables of OpenTelemetry decide, and none of its
modules is imported before one of them asks for spans."""

import logging
import os
from typing import TYPE_CHECKING

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import one_line

logger = logging.getLogger("pillion.spans")

#: Each of them asks for spans.
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
SUPPORTED = "http/protobuf"
#: Characters of an error of OpenTelemetry.
MOST_TEXT = 256

if TYPE_CHECKING:
    from pillion_sidecar.telemetry.spans import Spans


def create_spans(clock: Clock) -> "Spans | None":
    """Return None unless the environment asks for spans; logs why they cannot be recorded. Whoever
    called closes them."""
    endpoint = _first(ENDPOINTS)
    if endpoint is None or _is_off():
        return None
    protocol = _first(PROTOCOLS)
    if protocol is not None and (value := os.environ[protocol]) != SUPPORTED:
        _refuse(
            f"{protocol} is {value[:40]!r}: set it to {SUPPORTED}, and {endpoint} to the port of "
            "the collector for that (mostly 4318)"
        )
        return None
    try:
        from pillion_sidecar.telemetry.spans import Spans, create_exporter
    except ImportError:
        _refuse(f'{endpoint} is set: install the extra otel (pip install "pillion[otel]")')
        return None
    try:
        return Spans(create_exporter(), clock=clock)
    except (RuntimeError, ValueError) as error:
        _refuse(one_line(str(error), MOST_TEXT))
        return None


def _first(names: tuple[str, ...]) -> str | None:
    return next((name for name in names if os.environ.get(name)), None)


def _is_off() -> bool:
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").strip().lower()
    return disabled == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"


def _refuse(problem: str) -> None:
    logger.warning(
        "no spans are recorded; %s", problem, extra={"event": "spans-off", "problem": problem}
    )
