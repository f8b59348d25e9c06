"""The history of an ending sidecar on its way to a gateway: what is sent, and what the gateway
makes of it. Pure.

A part is MessagePack. Discards go first, then the rest, each in the order of their numbers; so the
last number of each kind says which the gateway has.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from pillion_sidecar.history.outcome import Origin, Outcome, OutcomeResult
from pillion_sidecar.indication import REDRIVEN_ELSEWHERE

CONTENT_TYPE = "application/msgpack"
#: Characters of the name of a pod, and of the ID of a history.
MOST_NAME = 253
#: Outcomes of a part.
MOST_OUTCOMES = 1000
GREATEST_NUMBER = 1 << 62
#: Beyond it no time can be shown.
_LATEST = 253_402_300_799.0


class HandedOver(msgspec.Struct, frozen=True, array_like=True, gc=False):
    #: In the sidecar's history.
    number: int
    outcome: Outcome
    #: Whether the discard was redriven there.
    is_redriven: bool = False


class Part(msgspec.Struct, frozen=True, kw_only=True):
    #: The name of the pod, and the ID of its history.
    pod: str
    history: str
    #: Whether it has discards; else it has none.
    discards: bool
    outcomes: Sequence[HandedOver]


class PartAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the gateway has made of a part. Unknown members are ignored."""

    #: Outcomes that are new, and that it had already.
    taken: int
    known: int
    #: The last number of this kind that the gateway has.
    last: int


encode_part = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Part).decode
read_answer = msgspec.json.Decoder(PartAnswer).decode


class WrongPart(ValueError): ...


def read_part(body: bytes, *, sound_body: Callable[[Outcome], bytes | None]) -> Part:
    """Decode and check a part completely: whoever has a sidecar's token could send anything.
    ``sound_body`` returns the indication to keep of an outcome that has one. Raises WrongPart."""
    try:
        part = _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WrongPart(f"no part of a history: {error}") from None
    names = (part.pod, part.history)
    if not all(0 < len(name) <= MOST_NAME and name.isprintable() for name in names):
        raise WrongPart(f"pod and history: give 1 to {MOST_NAME} printable characters")
    if len(part.outcomes) > MOST_OUTCOMES:
        raise WrongPart(f"more than {MOST_OUTCOMES} outcomes")
    before = 0
    for one in part.outcomes:
        if not before < one.number < GREATEST_NUMBER:
            raise WrongPart("the numbers do not ascend from 1")
        before = one.number
        _check(one.outcome, discards=part.discards)
    kept = [_kept(one, part, sound_body) for one in part.outcomes]
    return msgspec.structs.replace(part, outcomes=kept)


def _check(outcome: Outcome, *, discards: bool) -> None:
    times = (outcome.time, outcome.accepted, outcome.first_attempt, outcome.last_attempt)
    if not all(time is None or (math.isfinite(time) and 0 <= time < _LATEST) for time in times):
        raise WrongPart("a time is not between 1970 and 9999")
    if outcome.result not in list(OutcomeResult):
        raise WrongPart(f"result {outcome.result[:40]!r} is not known")
    if (outcome.result == OutcomeResult.DISCARDED) != discards:
        raise WrongPart("discards and other outcomes are in parts of their own")
    numbers = (outcome.status, outcome.attempts, outcome.sequence_number, outcome.group_sequence)
    if not all(number is None or abs(number) < GREATEST_NUMBER for number in numbers):
        raise WrongPart("a number is too large")


def _kept(one: HandedOver, part: Part, sound_body: Callable[[Outcome], bytes | None]) -> HandedOver:
    """Return an outcome as this history keeps it: numbers of the sidecar mean nothing here."""
    outcome = msgspec.structs.replace(
        one.outcome,
        number=None,
        queue=0,
        id=max(0, min(one.outcome.id, GREATEST_NUMBER)),
        redrives=REDRIVEN_ELSEWHERE if one.outcome.redrives else None,
        digest=None,
        # What it would tell here is of the sidecar's publishers and replays.
        publisher=None,
        note=None,
        replay=None,
        body=sound_body(one.outcome) if one.outcome.body else None,
        origin=Origin(part.pod, part.history, one.number),
    )
    return msgspec.structs.replace(one, outcome=outcome)
