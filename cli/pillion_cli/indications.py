"""The input of ``pillion publish``: batches of indications with their line numbers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePath
from typing import Any, BinaryIO

from pillion_cli.exits import CommandError, Exit

#: Maximum size of an indication (bytes).
MAXIMUM_LINE = 16 * 1024 * 1024
#: Maximum size of a batch with several indications (bytes).
MAXIMUM_BATCH = 4 * 1024 * 1024


class Kind(StrEnum):
    """A format; the value is the content type of a request with several indications."""

    NDJSON = "application/x-ndjson"
    JSON = "application/json"
    CLOUD_EVENTS = "application/cloudevents-batch+json"
    CIM_XML = "application/xml"


_BY_SUFFIX = {
    ".ndjson": Kind.NDJSON,
    ".jsonl": Kind.NDJSON,
    ".json": Kind.JSON,
    ".xml": Kind.CIM_XML,
}
_BY_CONTENT_TYPE = {
    "application/x-ndjson": Kind.NDJSON,
    "application/json": Kind.JSON,
    "application/cloudevents+json": Kind.CLOUD_EVENTS,
    "application/cloudevents-batch+json": Kind.CLOUD_EVENTS,
    "application/xml": Kind.CIM_XML,
    "text/xml": Kind.CIM_XML,
}


@dataclass(frozen=True, slots=True)
class Item:
    #: A line of NDJSON or a position in a JSON array; from 1.
    number: int
    body: bytes
    #: The number in a message group.
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    kind: Kind
    items: tuple[Item, ...]

    def body(self) -> bytes:
        bodies = [item.body for item in self.items]
        if self.kind is Kind.CLOUD_EVENTS:
            return b"[" + b",".join(bodies) + b"]"
        return b"\n".join(bodies)

    def of(self, items: Sequence[Item]) -> "Batch":
        return Batch(self.kind, tuple(items))


def kind_of(path: str, content_type: str | None) -> Kind:
    """Return the format by content type, else by suffix, else NDJSON. Raises CommandError."""
    if content_type is None:
        return _BY_SUFFIX.get(PurePath(path).suffix.lower(), Kind.NDJSON)
    kind = _BY_CONTENT_TYPE.get(content_type.partition(";")[0].strip().lower())
    if kind is None:
        known = ", ".join(_BY_CONTENT_TYPE)
        raise CommandError(
            f"--content-type {content_type!r} is not one of {known}", code=Exit.USAGE
        )
    return kind


def batches(stream: BinaryIO, kind: Kind, *, size: int) -> Iterator[Batch]:
    """Read batches of ``size`` indications; NDJSON is not read ahead. Raises CommandError."""
    if kind is Kind.CIM_XML:
        yield Batch(kind, (Item(1, stream.read()),))
        return
    if kind is Kind.NDJSON:
        items = _lines(stream)
    else:
        kind, items = _elements(stream, kind)
    yield from _grouped(items, kind, size)


def _grouped(items: Iterator[Item], kind: Kind, size: int) -> Iterator[Batch]:
    batch: list[Item] = []
    weight = 0
    for item in items:
        if batch and (len(batch) >= size or weight + len(item.body) > MAXIMUM_BATCH):
            yield Batch(kind, tuple(batch))
            batch, weight = [], 0
        batch.append(item)
        weight += len(item.body)
    if batch:
        yield Batch(kind, tuple(batch))


def _lines(stream: BinaryIO) -> Iterator[Item]:
    number = 0
    while line := stream.readline(MAXIMUM_LINE + 1):
        number += 1
        if len(line) > MAXIMUM_LINE:
            raise CommandError(f"line {number} is longer than {MAXIMUM_LINE} bytes")
        body = line.strip()
        if body:
            yield Item(number, body)


def _elements(stream: BinaryIO, kind: Kind) -> tuple[Kind, Iterator[Item]]:
    try:
        document = json.load(stream, object_pairs_hook=_without_repeats)
    except ValueError as error:
        raise CommandError(f"the input is not JSON: {error}") from error
    elements: list[Any] = document if isinstance(document, list) else [document]
    if elements and all(isinstance(one, dict) and "specversion" in one for one in elements):
        kind = Kind.CLOUD_EVENTS
    elif kind is Kind.JSON:
        kind = Kind.NDJSON
    bodies = (json.dumps(one, ensure_ascii=False).encode() for one in elements)
    return kind, (Item(number, body) for number, body in enumerate(bodies, start=1))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {repeated!r} appears twice in one object")
    return found


def membership(
    *,
    sequence: int,
    last: bool,
    ordered: bool,
    expires: float | None,
    max_idle_seconds: float | None,
) -> dict[str, Any]:
    """Return what places a line in its message group, without ``group``. ``expires`` is in seconds
    since the epoch."""
    members: dict[str, Any] = {"sequence": sequence}
    if last:
        members["last"] = True
    if ordered:
        members["ordered"] = True
    if expires is not None:
        date = datetime.fromtimestamp(expires, UTC)
        members["groupExpires"] = date.isoformat().replace("+00:00", "Z")
    if max_idle_seconds is not None:
        members["groupMaxIdleSeconds"] = max_idle_seconds
    return members
