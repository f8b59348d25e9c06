"""Asks a deliverer's process for its history."""

import json
from typing import Any

from support.sidecar import Sidecar

NEXT = "Pillion-Next-After"


async def asked(process: Sidecar, query: str = "") -> tuple[list[dict[str, Any]], int]:
    answer = await process.get(f"/v1/outcomes?{query}")
    assert answer.status == 200
    lines = [json.loads(line) for line in answer.document.splitlines()]
    return lines, int(answer.headers[NEXT])


async def settled(
    process: Sidecar, count: int, query: str = ""
) -> tuple[list[dict[str, Any]], int]:
    """Wait until so many are settled: an answer comes before their commit."""
    found, after = list[dict[str, Any]](), 0
    while len(found) < count:
        more, after = await asked(process, f"after={after}&wait=30&indication=true&{query}")
        found += more
    return found, after
