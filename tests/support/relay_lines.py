"""Lines as a sidecar relays them, and what a gateway's answer says of each."""

import json
from typing import Any

from support.intake import alert

UID = "uid-all"


def relayed(
    line: dict[str, Any] | str | None,
    number: int = 0,
    *,
    uid: str = UID,
    accepted_at: float = 1_700_000_000.0,
    context: str = "default#j#d#0",
    source: str | None = "s",
    **members: Any,
) -> dict[str, Any]:
    """One line; a text is the identifier of an alert, None one without."""
    given = dict(line) if isinstance(line, dict) else alert(line)
    if source is not None:
        given["source"] = source
    given |= members
    origin = {"subscription": uid, "acceptedAt": accepted_at, "context": context, "number": number}
    return given | {"relay": origin}


def compact(*lines: Any) -> bytes:
    """NDJSON as a sidecar writes it; bytes are taken as they are."""
    return b"".join(
        (one if isinstance(one, bytes) else json.dumps(one, separators=(",", ":")).encode()) + b"\n"
        for one in lines
    )


def statuses(document: dict[str, Any], lines: int) -> list[int]:
    """The status of each of so many lines: 200 where it was taken."""
    found = [200] * lines
    for one in document["refused"]:
        found[one["line"]] = one["status"]
    return found
