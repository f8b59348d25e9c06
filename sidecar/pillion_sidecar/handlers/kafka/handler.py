"""The Kafka handler: one record for each delivery. Waiting deliveries share a batch."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler
from pillion_sidecar.handlers.authorization import authorization
from pillion_sidecar.handlers.cloudevents import kept_event, render
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.coroutine import CoroutineBatchHandler, Done, Progress
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.kafka.brokers import Broker, Brokers
from pillion_sidecar.handlers.kafka.producer import SEPARATOR, Producer
from pillion_sidecar.handlers.kafka.wire import Authentication
from pillion_sidecar.handlers.libraries import load
from pillion_sidecar.handlers.transport.exchange import Sender
from pillion_sidecar.handlers.transport.sender import Waits
from pillion_sidecar.handlers.transport.target import NetworkTarget, parse_network_target
from pillion_sidecar.handlers.transport.wire import NewWire
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.protocols.kafka import PROTOCOL, KafkaKey, KafkaOptions, SASLMechanism

#: Seconds from the time-out of a request to that of an attempt, which may have several.
AFTER_SECONDS = 1.0
CODEC = "pillion_sidecar.handlers.kafka.codec"


class KafkaHandler:
    """Delivers to one topic."""

    def __init__(
        self,
        destination: ListenerDestination,
        context: HandlerContext,
        *,
        options: KafkaOptions,
        brokers: Brokers,
    ) -> None:
        self._brokers = brokers
        self._options = options
        self._clock: Clock = context.parts.clock
        self._timeout = destination.timeout_seconds
        self._name = destination.name
        self._service_name = context.service_name
        self._producer: Producer | None = None
        self._batches = CoroutineBatchHandler(
            self._deliver,
            render=self._render,
            most=PROTOCOL.most_at_once,
            name=destination.name,
            timers=context.parts.timers,
            # A broker that hangs ends its own request first, which concerns no other broker.
            timeout=destination.timeout_seconds + AFTER_SECONDS,
            slices=context.parts.slices,
        )

    def deliver(self, delivery: Delivery, done: Done) -> None:
        self._batches.deliver(delivery, done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: each delivery is rendered at once."""

    def close(self) -> None:
        self._batches.close()
        self._brokers.close()

    def _render(self, delivery: Delivery) -> bytes:
        event = kept_event(delivery.indication, delivery.selection, self._service_name)
        return b"%b%b%b" % (self._key(delivery.indication), SEPARATOR, render(event, delivery))

    def _key(self, indication: Indication) -> bytes:
        key = self._options.key
        if key is KafkaKey.DESTINATION:
            return self._name.encode()
        if key is KafkaKey.NONE:
            return b""
        group = indication.group if key is KafkaKey.GROUP else None
        return (group or indication.class_name).encode()

    async def _deliver(
        self, bodies: Sequence[bytes], progress: Progress
    ) -> Sequence[DeliveryOutcome]:
        if self._producer is None:
            progress.doing = f"loading {PROTOCOL.library}"
            self._producer = Producer(
                brokers=self._brokers,
                codec=await load(CODEC),
                options=self._options,
                clock=self._clock,
                timeout=self._timeout,
            )
        return await self._producer.deliver(bodies, progress)


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    options = destination.options
    if not isinstance(options, KafkaOptions):
        raise InvalidDestinationError("kafka.topic is missing")
    target = parse_network_target(destination.destination, PROTOCOL)
    scheme = "kafkas" if target.tls else "kafka"
    others = [parse_network_target(f"{scheme}://{one}", PROTOCOL) for one in options.brokers]
    # It checks them too.
    is_secret = bool(authorization(destination.credentials))

    def new_sender(target: NetworkTarget, new_wire: NewWire, waits: Waits) -> Sender:
        return context.sender(destination, target, new_wire=new_wire, waits=waits)

    new_broker: Callable[[NetworkTarget], Broker] = partial(
        Broker,
        new_sender=new_sender,
        authentication=partial(_authentication, destination, options.sasl_mechanism),
        is_shown=not destination.url_is_secret,
    )
    brokers = Brokers([target, *others], new_broker=new_broker, is_secret=is_secret)
    return KafkaHandler(destination, context, options=options, brokers=brokers)


def _authentication(
    destination: ListenerDestination, mechanism: SASLMechanism
) -> Authentication | None:
    credentials = destination.credentials
    if credentials is None:
        return None
    # It is loaded: a request was made by it.
    authentication: Authentication = sys.modules[CODEC].authenticate(
        mechanism,
        credentials.username,
        credentials.password,
        # A broker may quote its own name.
        quotes=not destination.url_is_secret,
    )
    return authentication
