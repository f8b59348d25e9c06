"""A delivery service on fake time with scripted handlers: what the delivery tests stand on."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pillion_sidecar.clock import Slices
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import ListenerDestination, RetryPolicy
from pillion_sidecar.config.schema.service import IndicationService
from pillion_sidecar.config.schema.subscription import IndicationSubscription
from pillion_sidecar.delivery.dispatcher import BeginSpan
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.service import DeliveryService
from pillion_sidecar.history.outcome import OutcomeSink
from pillion_sidecar.indication import (
    DiscardReason,
    GroupMember,
    Indication,
    Refusal,
    Selection,
    Target,
)
from pillion_sidecar.journal.memory import MemoryJournal
from pillion_sidecar.journal.ports import Journal, JournalOwner, Recovered
from pillion_sidecar.testing import FakeTime
from pillion_sidecar.trace_context import TraceContext

SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)
ERROR = DeliveryOutcome(DeliveryResult.ERROR, "connection refused")
FATAL_ERROR = DeliveryOutcome(DeliveryResult.FATAL_ERROR, "protocol not supported")
HELD = DeliveryOutcome(
    DeliveryResult.FATAL_ERROR, "the key is not the certificate's", hold=HoldCause.CERTIFICATES
)
POST_DELIVERY_ERROR = DeliveryOutcome(DeliveryResult.POST_DELIVERY_ERROR, "no answer")


class ScriptedHandler:
    """Answers each attempt as it is told; without ``answer`` attempts stay in flight."""

    def __init__(self, answer: DeliveryOutcome | None) -> None:
        self.answer = answer
        self.attempts: list[Delivery] = []
        self.times: list[float] = []
        self.prepared: list[str | None] = []
        #: The list of properties that each was prepared with.
        self.prepared_lists: list[Selection | None] = []
        self.held: deque[Callable[[DeliveryOutcome], None]] = deque()
        self.closed = False
        self.now: Callable[[], float] = lambda: 0.0

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        self.attempts.append(delivery)
        self.times.append(self.now())
        if self.answer is None:
            self.held.append(done)
        else:
            done(self.answer)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        self.prepared.append(indication.identifier)
        self.prepared_lists.append(selection)

    def close(self) -> None:
        self.closed = True

    @property
    def identifiers(self) -> list[str | None]:
        """The identifiers of all attempts, in order."""
        return [delivery.indication.identifier for delivery in self.attempts]


class Settlements:
    """A tracker that remembers what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, str, DiscardReason | None]] = []

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        self.seen.append((indication.identifier, destination, discarded))

    def of(self, identifier: str) -> list[tuple[str, DiscardReason | None]]:
        """What became of one indication's targets, sorted."""
        told = [(to, reason) for seen, to, reason in self.seen if seen == identifier]
        return sorted(told, key=lambda one: (one[0], one[1] or ""))

    @property
    def delivered(self) -> list[str | None]:
        return [identifier for identifier, _, reason in self.seen if reason is None]

    def discarded(self, reason: DiscardReason) -> list[str | None]:
        return [identifier for identifier, _, why in self.seen if why is reason]


class NoObserver:
    def attempted(self, protocol: str, seconds: float) -> None: ...

    def delivered(self, protocol: str, end_to_end_seconds: float) -> None: ...


def destination(name: str, **changes: Any) -> ListenerDestination:
    """A destination with a retry of 3 attempts 30 s apart, unless changed."""
    values: dict[str, Any] = {
        "uid": f"uid-{name}",
        "destination": f"http://{name}.example:5988/",
        "protocol": "CIM-XML",
        "retry": RetryPolicy(attempts=3, interval_seconds=30.0),
    }
    return ListenerDestination(name=name, **(values | changes))


def subscription(name: str, to: str, **changes: Any) -> IndicationSubscription:
    values: dict[str, Any] = {"uid": f"uid-{name}", "filter_name": f"filter-of-{name}"}
    return IndicationSubscription(name=name, destination_name=to, **(values | changes))


class Deliverer:
    """The service under test. ``run()`` lets the event loop have its turns."""

    def __init__(
        self,
        *,
        maximum_destinations: int = 100,
        draw: float = 0.0,
        journal: Journal | None = None,
        recovered: Recovered | None = None,
        time: FakeTime | None = None,
        history: OutcomeSink | None = None,
        begin_span: BeginSpan | None = None,
        slices: Slices | None = None,
    ) -> None:
        self.time = time or FakeTime()
        self.handlers: dict[str, ScriptedHandler] = {}
        self.created: list[ScriptedHandler] = []
        self.answer: DeliveryOutcome | None = SUCCESS
        self.settlements = Settlements()
        self.turns = 0
        self._soon: deque[Callable[[], None]] = deque()
        self.failure: OSError | None = None
        self.service = DeliveryService(
            clock=self.time,
            timers=self.time,
            call_soon=self._soon.append,
            create_handler=self._create_handler,
            observer=NoObserver(),
            followers=(self.settlements,),
            maximum_destinations=maximum_destinations,
            draw=lambda: draw,
            history=history,
            begin_span=begin_span,
            slices=slices,
        )
        if journal is None:
            self.open()
        else:
            self.service.open(journal, recovered or Recovered())
            journal.attach(self.journal_listener())
        self.configuration = Configuration(revision="0")

    def open(self) -> None:
        """Begin, where no journal is given."""
        self.service.open(MemoryJournal(clock=self.time, journal_id="run1"), Recovered())

    def journal_listener(self) -> JournalOwner:
        """Whom the journal asks, where no groups and no identities are."""
        return self.service.journal_listener(
            groups=bytes,
            identities=lambda digests: [None] * len(digests),
            failed=self.journal_failed,
        )

    def journal_failed(self, error: OSError) -> None:
        """The journal's disk has failed."""
        self.failure = error

    def _create_handler(self, resource: ListenerDestination) -> ScriptedHandler:
        handler = ScriptedHandler(self.answer)
        handler.now = self.time.monotonic
        self.handlers[resource.name] = handler
        self.created.append(handler)
        return handler

    def apply(
        self,
        destinations: Sequence[ListenerDestination],
        subscriptions: Sequence[IndicationSubscription] | None = None,
        **service: Any,
    ) -> None:
        """Apply a revision; without subscriptions each destination gets one of its own name."""
        if subscriptions is None:
            subscriptions = [
                subscription(resource.name, resource.name) for resource in destinations
            ]
        self.configuration = Configuration(
            revision=str(int(self.configuration.revision) + 1),
            service=IndicationService(**service),
            destinations={resource.name: resource for resource in destinations},
            subscriptions={resource.name: resource for resource in subscriptions},
        )
        self.service.apply(self.configuration)
        self.applied()
        self.run()

    def applied(self) -> None:
        """Do what an application does in the same turn."""

    def publish(
        self,
        identifier: str,
        *to: str,
        group: str | None = None,
        event: object = None,
        member: GroupMember | None = None,
        run: int = 0,
        body: bytes | None = None,
        trace: TraceContext | None = None,
    ) -> Refusal | None:
        """Offer one indication to the subscriptions named (all, where none is); no turn is run.

        ``run`` is the ``group_run`` of a ``member``.
        """
        names = to or tuple(self.configuration.subscriptions)
        targets = [
            Target(
                subscription=name,
                filter_name=self.configuration.subscriptions[name].filter_name,
                destination=self.configuration.subscriptions[name].destination_name,
                event=event,
            )
            for name in names
        ]
        indication = Indication(
            body=self.body_of(identifier) if body is None else body,
            class_name="CIM_AlertIndication",
            accepted_at=self.time.monotonic(),
            identifier=identifier,
            group=group,
            member=member,
            group_run=run,
            trackers=(self.settlements,),
            trace=trace,
        )
        return self.service.offer(indication, targets)

    def body_of(self, identifier: str) -> bytes:
        """The body of an indication."""
        return b"{}"

    def run(self) -> None:
        """Run what is due now until nothing is."""
        while self._soon:
            self.turns += 1
            self._soon.popleft()()

    def step(self) -> None:
        """Run one turn of the event loop."""
        self.turns += 1
        self._soon.popleft()()

    @property
    def idle(self) -> bool:
        return not self._soon and self.time.next_due() is None

    def advance(self, seconds: float) -> None:
        """Let time pass, with the event loop's turns in between."""
        end = self.time.monotonic() + seconds
        self.run()
        while (due := self.time.next_due()) is not None and due <= end:
            self.time.advance(max(0.0, due - self.time.monotonic()))
            self.run()
        self.time.advance(end - self.time.monotonic())
        self.run()

    def queue(self, name: str) -> DestinationQueue:
        found = self.service.queue(name)
        assert found is not None
        return found

    def answer_held(self, name: str, outcome: DeliveryOutcome) -> None:
        """Give the oldest attempt in flight its outcome."""
        self.handlers[name].held.popleft()(outcome)
        self.run()
