"""What a service's status and Events say of the sessions of its pods that are gone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from pillion_operator.polling.adoptions import Waits
from pillion_operator.status.conditions import Condition, some_of
from pillion_sidecar.wire.adoptions import AdoptionStatus

NO_ADOPTER = Waits(
    "HandOverMissing",
    "handOverTo is not set, so no gateway may adopt them. Set it to a service in mode Gateway.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSessions:
    """Of one service, after a round."""

    #: Of pods that are gone, and not adopted.
    sessions: int = 0
    #: The indications in those of them that were read.
    pending: int = 0
    #: The gateway that adopts; empty: none is named.
    adopter: str = ""
    #: Why they wait; None: they are being adopted.
    waits: Waits | None = None
    #: Pods that should have ended and are still there: an unreachable node has them.
    unresponsive: tuple[str, ...] = ()


def sessions_condition(found: PendingSessions) -> Condition:
    kind = "SessionsPending"
    if found.sessions:
        of = f"{found.sessions} journal(s) of pods that are gone"
        if found.waits is not None:
            message = f"{of} wait for adoption: {found.waits.message}"
            return Condition(kind, "True", found.waits.reason, message)
        known = f", with {found.pending} pending indication(s)" if found.pending else ""
        message = f"The gateway {found.adopter} adopts {of}{known}."
        return Condition(kind, "True", "Adopting", message)
    if found.unresponsive:
        message = (
            f"{some_of(found.unresponsive)} should have ended and did not: the node may be "
            "unreachable, and the pod may still run. Its journal is adopted once the pod is gone. "
            "If the node is down for good, delete it, or taint it with "
            "node.kubernetes.io/out-of-service."
        )
        return Condition(kind, "False", "Unresponsive", message)
    if not found.adopter:
        message = f"No journal of a pod that is gone waits. {NO_ADOPTER.message}"
        return Condition(kind, "False", NO_ADOPTER.reason, message)
    message = "No journal of a pod that is gone waits for adoption."
    return Condition(kind, "False", "NoneLeft", message)


def adopted_note(gateway: str, done: Sequence[AdoptionStatus]) -> str:
    """The Event SessionAdopted. With the sessions: the same note is told once an hour."""
    taken, repeats, refused, left = (
        sum(getattr(one, name) for one in done)
        for name in ("taken", "duplicate", "refused", "pending")
    )
    said = (
        f"The gateway {gateway} has adopted {len(done)} journal(s) of pods that are gone: "
        f"{taken} indication(s) taken, {repeats} that it had already, {refused} refused, "
        f"{left} left. Session: {some_of([one.session for one in done])}."
    )
    kept = [one.problem for one in done if one.problem]
    return f"{said} {kept[0]}." if kept else said


def waits_note(found: PendingSessions) -> str:
    """The Event AdoptionWaits. Without numbers: the same is told once an hour."""
    assert found.waits is not None
    return f"{found.waits.reason}: journals of pods that are gone wait: {found.waits.message}"
