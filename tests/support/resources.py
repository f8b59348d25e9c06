"""Resource documents for tests: valid ones, to be changed at will."""

import json
from pathlib import Path
from typing import Any

from pillion_sidecar.config.rendered import Rendered, pack, render

JSON = dict[str, Any]


def document(kind: str, name: str, spec: JSON | None = None, **metadata: Any) -> JSON:
    """A resource of pillion.dev."""
    resource: JSON = {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, **metadata},
    }
    if spec is not None:
        resource["spec"] = spec
    return resource


def destination(name: str = "ops", /, **spec: Any) -> JSON:
    """A ListenerDestination."""
    url = "https://listener.example/alerts"
    return document(
        "ListenerDestination", name, {"destination": url, "protocol": "CIM-XML", **spec}
    )


def alert_filter(name: str = "alerts", **spec: Any) -> JSON:
    """An IndicationFilter."""
    query = "SELECT * FROM CIM_AlertIndication"
    return document("IndicationFilter", name, {"query": query, **spec})


def subscription(
    name: str = "alerts-to-ops", to: str = "ops", of: str = "alerts", **spec: Any
) -> JSON:
    """An IndicationSubscription."""
    references = {"filterRef": {"name": of}, "destinationRef": {"name": to}}
    return document("IndicationSubscription", name, {**references, **spec})


def service(name: str = "default", **spec: Any) -> JSON:
    """An IndicationService."""
    return document("IndicationService", name, spec)


def secret(name: str, texts: dict[str, str] | None = None, *, labelled: bool = True) -> JSON:
    """A Secret, with the label that lets destinations use it."""
    labels = {"pillion.dev/credentials": "true"} if labelled else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels},
        "stringData": texts or {},
    }


def write(folder: Path, *documents: JSON, file: str = "resources.yaml") -> Path:
    """Write documents into one file of a folder, which is returned."""
    text = "\n---\n".join(json.dumps(document, indent=2) for document in documents)
    (folder / file).write_text(text, encoding="utf-8")
    return folder


def write_rendered(folder: Path, *documents: JSON, part_size: int = 900_000) -> Rendered:
    """Write documents as the operator does; revisions that were there before go."""
    rendered = pack(render(documents), part_size=part_size)
    for file in folder.glob("*.part-*"):
        file.unlink()
    for name, content in rendered.files:
        (folder / name).write_bytes(content)
    return rendered
