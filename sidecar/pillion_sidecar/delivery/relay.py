"""Queue parameters of a destination that is relayed or handed over to a gateway
(docs/decisions/0016). Pure.

The gateway retries, orders and discards as the destination says; the deliverer only waits and keeps
order.
"""

import hmac
from dataclasses import replace

from pillion_sidecar.config.addresses import address_of, listener_address
from pillion_sidecar.config.durability import effective_lifetime, effective_retry
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import (
    Backoff,
    DeliverThrough,
    ListenerDestination,
    Ordering,
    RetryPolicy,
    SequenceIdentifiers,
)
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.handler import RELAY
from pillion_sidecar.protocols import PROTOCOLS

#: Entries of a relayed destination in flight. Its handler keeps their order.
IN_FLIGHT = 256
#: Seconds between the first two attempts to reach a gateway, and the maximum.
FIRST_INTERVAL = 1.0
GREATEST_INTERVAL = 30.0
#: Bytes of the digest of a secret URL.
_DIGEST_BYTES = 6
#: Seconds for a gateway's answer, which waits only for its disk.
TIMEOUT = 30.0


def as_delivered(configuration: Configuration, durability: Durability) -> Configuration:
    """Return a revision whose relayed destinations have their queue parameters."""
    relayed = {
        name: as_relayed(destination, durability)
        for name, destination in configuration.destinations.items()
        if destination.relay_to is not None
    }
    if not relayed:
        return configuration
    return replace(configuration, destinations={**configuration.destinations, **relayed})


def as_relayed(destination: ListenerDestination, durability: Durability) -> ListenerDestination:
    """Return a destination with ``relay_to`` with its queue parameters.

    The destination's own retry still bounds the lifetime (D.2). Context and number are always
    present: they identify indications without an identifier.
    """
    queue_size = destination.queue_size
    return replace(
        destination,
        indication_lifetime_seconds=effective_lifetime(destination, durability),
        retry=_retry(effective_retry(destination, durability)),
        timeout_seconds=TIMEOUT,
        ordering=Ordering.DESTINATION,
        options=None,
        max_in_flight=IN_FLIGHT if queue_size is None else max(1, min(IN_FLIGHT, queue_size)),
        sequence_identifiers=SequenceIdentifiers.SEND,
        # The gateway keeps to it.
        rate_limit=None,
    )


def as_handed_over(
    destination: ListenerDestination, *, durability: Durability, gateway: str, timeout: float
) -> ListenerDestination:
    """Return a destination of this deliverer with the parameters for a hand-over; the gateway's
    answer may take ``timeout`` seconds."""
    return replace(
        as_relayed(replace(destination, relay_to=gateway), durability),
        deliver_through=DeliverThrough.DELIVERER,
        timeout_seconds=timeout,
        # The gateway applies the suspension.
        suspended=False,
    )


def _retry(own: RetryPolicy) -> RetryPolicy:
    # 0 would retry an unreachable gateway without a pause.
    first = min(FIRST_INTERVAL, own.interval_seconds) or FIRST_INTERVAL
    return RetryPolicy(
        attempts=own.attempts,
        interval_seconds=first,
        backoff=Backoff.EXPONENTIAL,
        maximum_interval_seconds=max(first, min(GREATEST_INTERVAL, own.interval_seconds)),
        jitter=own.jitter,
    )


def protocol_of(destination: ListenerDestination) -> str:
    return destination.protocol if destination.relay_to is None else RELAY


def listener_of(destination: ListenerDestination) -> str:
    """Return the identity of the listener: another one needs another sequence context."""
    if destination.url_is_secret and destination.relay_to is None:
        place = _digest(destination)
    else:
        place = destination.relay_to or address_of(destination)
    return f"{protocol_of(destination)} {place}"


def _digest(destination: ListenerDestination) -> str:
    """Return the digest of a secret URL for the journal.

    Salted against tables of digests. A reader of the journal can verify a guess of the whole URL,
    but not derive it.
    """
    salt, address = destination.uid.encode(), address_of(destination).encode()
    return f"secret:{hmac.digest(salt, address, 'sha256')[:_DIGEST_BYTES].hex()}"


def same_listener(known: str, listener: str) -> bool:
    """Whether a journal's listener is the current one, in any spelling of its URL: the first
    release wrote it verbatim."""
    before = known
    protocol, _, place = known.partition(" ")
    if protocol in PROTOCOLS:
        known = f"{protocol} {listener_address(place, protocol)}"
    return listener in (known, before)


def missing_gateway(configuration: Configuration) -> tuple[str, ...]:
    """Return the faults of destinations that need a gateway, for a deliverer without one."""
    relayed = sorted(
        name
        for name, destination in configuration.destinations.items()
        if destination.relay_to is not None
    )
    warnings = []
    if relayed:
        shown = ", ".join(relayed[:10]) + (", …" if len(relayed) > 10 else "")
        warnings.append(
            f"what is for {shown} waits: it is to be relayed to gateway"
            f" {configuration.service.gateway}, and this deliverer was started without --gateway"
        )
    if configuration.service.hand_over_to is not None:
        warnings.append(
            f"nothing is handed over to {configuration.service.hand_over_to} at the end: this"
            " deliverer was started without --gateway"
        )
    return tuple(warnings)
