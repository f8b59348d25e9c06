"""The last word of a container: what the kubelet keeps of it when it is gone."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

logger = logging.getLogger("pillion.deliverer")

#: Where Kubernetes looks for it (a container's terminationMessagePath); elsewhere it is not there.
TERMINATION_LOG = Path("/dev/termination-log")
#: Bytes of it that the kubelet keeps.
MOST_BYTES = 4096


def leave_word(
    left: int | None, *, destinations: Mapping[str, int], path: Path = TERMINATION_LOG
) -> None:
    """Say how many indications a deliverer leaves behind, where anybody looks for it.

    ``kubectl describe pod`` shows it, and the operator reads it: of a deliverer whose volume goes
    with its pod nothing else tells it. ``left`` is None where that is not known, as where it never
    got as far as to deliver; ``destinations`` are counts by name, the most first.
    """
    if left is None or not path.exists():
        return
    try:
        path.write_text(termination_message(left, destinations), encoding="utf-8")
    except OSError as error:
        # The log says what is left, too.
        logger.warning("the termination message cannot be written: %s", error.strerror)


def termination_message(left: int, destinations: Mapping[str, int]) -> str:
    """What is left as JSON of at most 4,096 bytes: in all, and of as many destinations as fit;
    ``others`` counts the destinations that do not."""
    if not destinations:
        return json.dumps({"left": left})
    named: dict[str, int] = {}
    message = ""
    for shown, (name, count) in enumerate(destinations.items(), start=1):
        named[name] = count
        document = {"left": left, "destinations": named, "others": len(destinations) - shown}
        longer = json.dumps(document, ensure_ascii=False)
        if len(longer.encode()) > MOST_BYTES:
            break
        message = longer
    return message or json.dumps({"left": left, "others": len(destinations)})
