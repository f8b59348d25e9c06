"""A real OpenTelemetry collector, and the spans that it has."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from support.broker_programs import RECEIVERS, free_port, running

COLLECTOR = RECEIVERS.find("collector")
WITHOUT_COLLECTOR = "the OpenTelemetry collector is missing: make receivers builds it"
CONFIGURATION = """
receivers: {otlp: {protocols: {http: {endpoint: "127.0.0.1:%d"}}}}
exporters: {debug: {verbosity: detailed, use_internal_logger: false}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [debug]}}
"""
_FIELD = re.compile(r" +(?:-> )?([\w. ]+?) *: (?:(?:Str|Int)\((.*)\)|(.*))")


@dataclass
class Collector:
    port: int
    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def spans(self) -> list[dict[str, str]]:
        """The fields and attributes of all spans that it has, and ``service.name``."""
        found: list[dict[str, str]] = []
        for resource in self.folder.joinpath("log").read_text().split("\nResourceSpans #")[1:]:
            head, *spans = resource.split("\nSpan #")
            service = _fields(head).get("service.name", "")
            found += [{**_fields(span), "service.name": service} for span in spans]
        return found


def _fields(text: str) -> dict[str, str]:
    lines = (_FIELD.fullmatch(line) for line in text.partition("\n\n")[0].splitlines())
    return {one[1]: one[2] or one[3] or "" for one in lines if one is not None}


def _prepare(folder: Path) -> tuple[Collector, list[str]]:
    folder.mkdir()
    made = Collector(free_port(), folder)
    file = folder / "collector.yaml"
    file.write_text(CONFIGURATION % made.port)
    return made, [str(COLLECTOR), "--config", str(file)]


@asynccontextmanager
async def collector(folder: Path) -> AsyncIterator[Collector]:
    """Run one while the context lasts; ``folder`` is made."""
    made, command = _prepare(folder)
    async with running(command, port=made.port, folder=folder):
        yield made
