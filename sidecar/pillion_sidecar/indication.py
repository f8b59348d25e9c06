"""An accepted indication as it travels from intake to the listeners, and the words that all parts
of the deliverer share: who it goes to, why it is refused, why it is discarded."""

from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar, cast

import msgspec

from pillion_cim.model import CIMInstance
from pillion_cim.schema import Schema
from pillion_sidecar.trace_context import TraceContext

#: The casefolded names of the properties that a delivery carries (D.3).
Selection: TypeAlias = frozenset[str]
#: The name of a form of an indication; with a selection where it lacks properties.
FormKey: TypeAlias = str | tuple[str, Selection]
#: Forms with listed properties that one indication keeps. Beyond it the oldest is dropped, and made
#: again for its next delivery.
MOST_LISTED = 8
#: In ``Indication.redrives``: the history of the sidecar that relays it has the number.
REDRIVEN_ELSEWHERE = -1
#: Carried with any list, if the publisher gave them: listeners recognize an indication by them.
ALWAYS_CARRIED = ("CorrelatedIndications", "IndicationIdentifier", "IndicationTime")

#: Returns what is delivered of an indication in its JSON form; None: it is not selected. Any thread
#: may call it.
Select: TypeAlias = Callable[[bytes], bytes | None]

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_Form = TypeVar("_Form")


def selection_of(listed: Iterable[str]) -> Selection:
    return frozenset(name.casefold() for name in (*listed, *ALWAYS_CARRIED))


def selected_body(body: bytes, selection: Selection) -> bytes:
    """Return an instance in its JSON form without the properties that are not selected. Raises
    ValueError if the body is not the JSON form of an instance."""
    try:
        instance = _decode(body)
        given = _decode(instance["properties"])
    except (msgspec.MsgspecError, KeyError) as error:
        raise ValueError(f"the body is no instance: {error}") from error
    kept = {name: value for name, value in given.items() if name.casefold() in selection}
    return msgspec.json.encode({**instance, "properties": kept})


class DiscardReason(StrEnum):
    """The reasons for discarding what had been accepted (S0.4, S0.7, S0.10, S0.11, S0.14, S1.6,
    D.2)."""

    QUEUE_FULL = "queue-full"
    ATTEMPTS_EXCEEDED = "attempts-exceeded"
    LIFETIME_EXPIRED = "lifetime-expired"
    SUBSCRIPTION_NOT_ACTIVE = "subscription-not-active"
    DESTINATION_REMOVED = "destination-removed"
    FATAL_ERROR = "fatal-error"
    SHUTDOWN = "shutdown"
    #: An administrator's skip or purge of a destination queue.
    PURGED = "purged"
    #: A member of an ordered group whose predecessors never came (S1.6), or were discarded at its
    #: destination (S1.5).
    OUT_OF_ORDER = "out-of-order"
    #: The journal cannot read it.
    DAMAGED = "damaged"


class Unreached(StrEnum):
    """Why an indication that was accepted goes to no listener at all."""

    #: No subscription selects it.
    UNROUTED = "unrouted"
    #: The subscriptions that select it are disabled or have ended.
    ENDED = "ended"
    #: A repeatNotificationPolicy suppresses or delays it.
    SUPPRESSED = "suppressed"


class Tracker(Protocol):
    """Follows what becomes of an indication: a receipt, a publisher's flush, the memory of
    identifiers."""

    def settled(
        self, indication: "Indication", destination: str, discarded: DiscardReason | None
    ) -> None:
        """One target is settled: delivered (``discarded`` None) or discarded for a reason.

        Called once for each target, on the event loop; must not raise and must not block.
        """


class GroupMember(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The place of an indication in its message group (S1), as its publisher gave it."""

    #: The group sequence, from 0.
    sequence: int
    #: No greater sequence follows (the draft's ``status="end"``).
    last: bool = False
    #: Never deliver past a gap (S1.5).
    ordered: bool = False
    #: ``groupExpires`` in seconds since the epoch: GroupExpiryTime.
    expires: float | None = None
    #: ``groupMaxIdleSeconds``: GroupMaxIdleTime.
    max_idle_seconds: float | None = None


class Relayed(msgspec.Struct, frozen=True, gc=False):
    """How an indication came to this gateway that a sidecar had accepted."""

    #: ``Clock.monotonic()`` when it came.
    at: float
    #: End of the memory of its identity, in seconds since the epoch: not before its ``expires``,
    #: nor before the window since its arrival, since it may be sent again.
    remembered_until: float


class DeadLetter(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Why an indication is a dead letter: its discard for another destination."""

    destination: str
    #: A ``DiscardReason``; a later version may have others.
    reason: str
    #: One line of the last attempt, without secrets; may be empty.
    detail: str
    attempts: int
    #: Seconds since the epoch.
    at: float


class Indication(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """One accepted indication. Not changed after acceptance but for ``unsettled``, ``rendered`` and
    what the journal notes.

    A million of these may be pending: hence a struct that the garbage collector does not walk. It
    is part of no cycle, and must stay so.
    """

    #: The instance in its JSON form: ``{"class": …, "properties": {…}}``, UTF-8, one line.
    body: bytes
    class_name: str
    #: ``Clock.monotonic()`` at acceptance; of a relayed one at that by its sidecar.
    accepted_at: float
    source: str | None = None
    #: IndicationIdentifier, where the publisher gave one.
    identifier: str | None = None
    #: The message group, for ``ordering: Group``.
    group: str | None = None
    #: Its place in that group (S1); None where the publisher gave no ``sequence``.
    member: GroupMember | None = None
    #: Distinguishes the group from all others of this journal, even of the same name; 0 for no
    #: member, and in journals of the first release.
    group_run: int = 0
    #: ``expires`` in seconds since the epoch; gates acceptance, and bounds the memory of it (S1.3).
    expires: float | None = None
    #: The digest of its identity; None without one.
    digest: bytes | None = None
    #: Content languages (S0.21), as language tags.
    languages: tuple[str, ...] = ()
    trackers: tuple[Tracker, ...] = ()
    #: Targets that are neither delivered nor discarded.
    unsettled: int = 0
    #: Forms that deliveries share: see :meth:`form`.
    rendered: dict[FormKey, object] | None = None
    #: The journal sequence, ascending; 0 before it is known.
    id: int = 0
    #: Position and bytes in the journal; -1 and 0 outside.
    position: int = -1
    size: int = 0
    #: None where its publisher gave it to this deliverer.
    relayed: Relayed | None = None
    #: The number of the outcome, in the history, whose indication it repeats; 0: none;
    #: REDRIVEN_ELSEWHERE.
    redrives: int = 0
    #: None where it is no dead letter.
    dead_letter: DeadLetter | None = None
    #: uid of the IndicationReplay that repeats it; empty: none.
    replay: str = ""
    #: ``Pillion-Publisher`` of its request, with the namespace of a gateway's publisher.
    publisher: str | None = None
    trace: TraceContext | None = None

    def form(self, name: str, selection: Selection | None, make: Callable[[bytes], _Form]) -> _Form:
        """Return the form ``name``, which deliveries with the same properties share; ``make`` gets
        the body with those that ``selection`` lists, None: with all. Raises ValueError if the body
        is not the JSON form of an instance, and what ``make`` raises."""
        rendered = self.rendered
        if rendered is None:
            rendered = self.rendered = {}
        key: FormKey = name if selection is None else (name, selection)
        kept = rendered.get(key)
        if kept is not None:
            return cast("_Form", kept)
        if selection is None:
            form = rendered[key] = make(self.body)
            return form
        form = rendered[key] = make(selected_body(self.body, selection))
        listed = [one for one in rendered if isinstance(one, tuple)]
        if len(listed) > MOST_LISTED:
            del rendered[listed[0]]
        return form


@dataclass(frozen=True, slots=True)
class Target:
    """One (subscription, destination) that an indication goes to."""

    subscription: str
    filter_name: str
    destination: str
    #: Equal for repeats, if the subscription has a RepeatNotificationPolicy.
    event: Hashable = None
    #: Whether it is relayed to a gateway, which holds and orders groups, those of other publishers
    #: too; so it is relayed past gaps (S1.5).
    relayed: bool = False
    #: Whether no filter has selected it, so that the destination alone says who gets it.
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an indication cannot be accepted now."""

    #: Seconds after which it is worth trying again.
    retry_after: float
    reason: str
    #: The destination whose queue is full; None for other reasons.
    destination: str | None = None
    #: Whether it is for one message group alone.
    is_of_group: bool = False


class Identities(Tracker, Protocol):
    """Remembers what became of each identity."""

    def follow(self, indication: Indication, digest: bytes) -> None:
        """Give an indication that is offered again to one target the identity of its original, and
        follow it, so that a repeat of its publisher is known as one. Nothing is done if the
        original is not remembered, is pending, or was accepted anew and has come to its targets."""


class Routes(Protocol):
    """Works out who is subscribed to an indication."""

    def route(
        self, class_name: str, instance: "InstanceSource", source_namespace: str | None
    ) -> Sequence[Target]:
        """Return the targets of an indication; none where nobody has subscribed to it.

        ``instance`` is called at most once, and only where a filter has a condition to evaluate.
        """

    @property
    def schema(self) -> Schema:
        """The classes by which filters select: the packaged ones, and those that are declared."""

    @property
    def takes_relayed(self) -> bool:
        """Whether sidecars may relay to this deliverer: whether it is a gateway."""

    def relayed(self, subscription: str, instance: "InstanceSource") -> Target | None:
        """Return the target of what a sidecar relays for a subscription, given by its uid; None
        where no enabled one is known.

        ``instance`` is called only where repeats are suppressed or delayed.
        """

    def knows(self, subscription: str) -> bool:
        """Whether ``relayed`` has a target for a subscription (uid)."""


class InstanceSource(Protocol):
    """Gives the decoded instance when it is asked for."""

    def __call__(self) -> CIMInstance: ...


@dataclass(slots=True, kw_only=True)
class Lost:
    """An accepted indication that some of its targets have missed, as its publisher gives it
    again; and what becomes of that."""

    #: The digest of its identity.
    digest: bytes
    #: Without digest and place in its group; its trackers are told of each target that gets it.
    indication: Indication
    #: A target that misses it, and why. None: each target has it, or is offered it.
    still: tuple[str, DiscardReason] | None
    #: Targets that are offered it again.
    offered: int = 0
    #: Why a target cannot be offered it now.
    refusal: Refusal | None = None


class Redelivery(Protocol):
    """Offers indications again to those of their targets that missed them."""

    async def redeliver(self, lost: Sequence[Lost], *, since: float | None) -> None:
        """Offer each again, once; what becomes of it is noted in it. ``since``: when the oldest was
        accepted at the earliest, in seconds since the epoch; None: not known. Raises OSError if the
        history cannot be read; then nothing was offered."""


class Queues(Protocol):
    """Takes indications over for delivery."""

    def offer(
        self, indication: Indication, targets: Sequence[Target], *, completes: bool = False
    ) -> Refusal | None:
        """Queue an indication for all its targets or, with a Refusal, for none.

        Sets ``indication.id`` and ``unsettled``; each target's settlement is told to
        ``indication.trackers`` later, never from within this call unless a full queue discards an
        older indication, or the subscription that it was relayed for has ended. Without targets
        only its identity and its group are kept. What ``completes`` a group, members of which are
        held, is refused by no full queue.
        """

    def offer_all(
        self, indications: Sequence[Indication], targets: Sequence[Sequence[Target]]
    ) -> bool:
        """Queue each indication for all its targets, if nothing is refused, discarded or suppressed
        for that; False: none is queued, and each must be offered. None is a member of a group, and
        ``unsettled`` is set already."""

    def hold(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        """Keep an indication for all its targets or, with a Refusal, for none, and deliver it only
        when it is released (S1.5): its places in the queues are reserved. To the targets that are
        relayed it goes at once.

        Sets ``indication.id`` and ``unsettled``.
        """

    def release(self, indication: Indication) -> None:
        """Queue a held indication; a target whose subscription has ended is discarded."""

    def discard_held(self, indication: Indication, reason: DiscardReason) -> None:
        """Discard a held indication for all its targets."""

    def lose(self, indication: Indication, destination: str) -> None:
        """A destination has lost what a member of an ordered group repeats: the group ends
        there (S1.5)."""

    def end_group(self, run: int) -> None:
        """No further member of a message group will be offered or released (``group_run``)."""

    def end_other_groups(self, runs: Set[int]) -> None:
        """Nor will one of any group but these: after a restart."""

    def have_ended(self, targets: Sequence[Target]) -> bool:
        """Whether the subscriptions of all targets are disabled or have ended."""

    def barrier(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all that was taken before this call is as safe as the journal can
        make it: at once where it is already."""
