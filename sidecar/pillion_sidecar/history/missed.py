"""What the targets of an indication have missed, as its identity tells. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from pillion_sidecar.history.outcome import Numbered, OutcomeResult

#: Of an identity.
Digest: TypeAlias = bytes
#: The target, or the gateway that delivers to it, has it.
REACHED = (OutcomeResult.DELIVERED, OutcomeResult.RELAYED, OutcomeResult.HANDED_OVER)


def missed_by(
    discards: Iterable[Numbered], digests: Collection[Digest]
) -> Mapping[Digest, Sequence[Numbered]]:
    """Return the discards of the latest indication with each identity, and those of its redrives.

    ``discards``: oldest first. An earlier indication of the same identity was discarded at all its
    targets, and accepted anew: what it missed is not missed any more.
    """
    found: dict[Digest, list[Numbered]] = {}
    # A redrive need not have a digest: it is known by the discard that it repeats.
    owners: dict[int, Digest] = {}
    for number, outcome in discards:
        if outcome.replay is not None:
            # It may be of a destination to which the indication was never routed.
            continue
        digest = owners.get(outcome.redrives) if outcome.redrives else outcome.digest
        if digest is None or digest not in digests:
            continue
        of_it = found.setdefault(digest, [])
        if not outcome.redrives and of_it and of_it[0].outcome.id != outcome.id:
            of_it.clear()
        owners[number] = digest
        of_it.append(Numbered(number, msgspec.structs.replace(outcome, body=None)))
    return found
