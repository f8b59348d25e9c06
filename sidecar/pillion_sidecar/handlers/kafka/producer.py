"""The producer of one destination: finds the leaders of its topic, and sends them batches of
records."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TypeAlias

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import (
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
)
from pillion_sidecar.handlers.batches import unsent
from pillion_sidecar.handlers.coroutine import Progress
from pillion_sidecar.handlers.errors import HandlerError, InvalidDestinationError
from pillion_sidecar.handlers.kafka.brokers import Brokers, NoAnswerError
from pillion_sidecar.handlers.kafka.codes import ABOUT_RECORDS, Code, outcome_of
from pillion_sidecar.handlers.transport.exchange import failure_outcome
from pillion_sidecar.protocols.kafka import KafkaCompression, KafkaKey, KafkaOptions

#: Seconds after which leaders are asked for again: partitions may have been added.
REFRESH_SECONDS = 300.0
#: Bytes of a batch with several records. Kafka's default limit is 1,048,588.
BATCH_BYTES = 1_000_000
#: Bytes of a record besides key and value, roughly.
RECORD_BYTES = 96
#: Between the key and the value of a waiting delivery; JSON never has it.
SEPARATOR = b"\0"
_SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)

#: Key and value.
Record: TypeAlias = tuple[bytes | None, bytes]
#: Places of records in an attempt, for one batch.
_Places: TypeAlias = Sequence[int]


class _TopicError(HandlerError):
    def __init__(self, outcome: DeliveryOutcome) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


class _Attempt:
    """The records of one attempt, and the outcome of each."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        parts = [body.rpartition(SEPARATOR) for body in bodies]
        self.records: list[Record] = [(key or None, value) for key, _, value in parts]
        self._outcomes: dict[int, DeliveryOutcome] = {}

    @property
    def outcomes(self) -> Sequence[DeliveryOutcome]:
        return [self._outcomes[place] for place in range(len(self.records))]

    @property
    def places(self) -> _Places:
        return range(len(self.records))

    def succeed(self, places: _Places) -> None:
        self._outcomes.update(dict.fromkeys(places, _SUCCESS))

    def fail(self, places: _Places, outcome: DeliveryOutcome) -> None:
        """Without the failure of the first one, the others would not have been delivered either,
        so they spend no attempt."""
        rest = outcome
        if outcome.result is not DeliveryResult.POST_DELIVERY_ERROR:
            rest = unsent(outcome)
        for place in places:
            self._outcomes[place] = outcome if place == places[0] else rest

    def size(self, place: int) -> int:
        key, value = self.records[place]
        return len(key or b"") + len(value) + RECORD_BYTES

    def batches(self, places: _Places, most: int) -> deque[_Places]:
        """Divide records into batches of at most ``most`` bytes; a longer record is alone."""
        divided: deque[_Places] = deque()
        batch: list[int] = []
        size = 0
        for place in places:
            size += self.size(place)
            if batch and size > most:
                divided.append(batch)
                batch, size = [], self.size(place)
            batch.append(place)
        divided.append(batch)
        return divided


class Producer:
    def __init__(
        self,
        *,
        brokers: Brokers,
        codec: ModuleType,
        options: KafkaOptions,
        clock: Clock,
        timeout: float,
    ) -> None:
        """``codec``: :mod:`pillion_sidecar.handlers.kafka.codec`. ``timeout``: seconds of an
        attempt."""
        self._brokers = brokers
        self._codec = codec
        self._options = options
        self._topic = options.topic
        self._clock = clock
        self._timeout = timeout
        # Of the topic, by partition; None: unknown.
        self._leaders: Mapping[int, tuple[str, int]] | None = None
        self._partitions = 0
        self._asked_at = 0.0
        # Without keys, batches go to partitions in turn.
        self._turn = 0
        self._batch_bytes = BATCH_BYTES

    async def deliver(
        self, bodies: Sequence[bytes], progress: Progress
    ) -> Sequence[DeliveryOutcome]:
        """See :class:`pillion_sidecar.handlers.coroutine.DeliverBatch`. ``bodies``: each a key,
        :data:`SEPARATOR`, and a value. Success: the broker has confirmed a record."""
        attempt = _Attempt(bodies)
        try:
            leaders = await self._find_leaders(progress)
            by_partition = self._divide(attempt, leaders)
        except HandlerError as error:
            attempt.fail(attempt.places, _outcome(error, may_have=False))
            return attempt.outcomes
        by_leader: dict[tuple[str, int], dict[int, deque[_Places]]] = {}
        for partition, places in by_partition.items():
            if partition in leaders:
                batches = attempt.batches(places, self._batch_bytes)
                by_leader.setdefault(leaders[partition], {})[partition] = batches
            else:
                self._leaders = None
                detail = f"partition {partition} of topic {self._topic} has no leader"
                attempt.fail(places, DeliveryOutcome(DeliveryResult.ERROR, detail))
        try:
            async with asyncio.TaskGroup() as group:
                for address, shares in by_leader.items():
                    group.create_task(self._send(attempt, address, shares, progress))
        except asyncio.CancelledError:
            # A leader that hangs may have been replaced.
            self._leaders = None
            raise
        return attempt.outcomes

    async def _find_leaders(self, progress: Progress) -> Mapping[int, tuple[str, int]]:
        """Raises HandlerError."""
        now = self._clock.monotonic()
        if self._leaders is not None and now - self._asked_at < REFRESH_SECONDS:
            return self._leaders
        progress.doing = f"asking for the leaders of topic {self._topic}"
        answer = await self._brokers.ask_any(self._codec.metadata_request(self._topic), progress)
        found = self._codec.read_leaders(answer, self._topic)
        if found.code != Code.NONE:
            raise _TopicError(outcome_of(found.code, self._topic))
        if not found.addresses:
            detail = f"no partition of topic {self._topic} has a leader"
            raise _TopicError(DeliveryOutcome(DeliveryResult.ERROR, detail))
        self._brokers.keep(set(found.addresses.values()))
        self._partitions, self._asked_at = found.partitions, now
        self._leaders = leaders = dict(found.addresses)
        self._batch_bytes = BATCH_BYTES
        return leaders

    def _divide(
        self, attempt: _Attempt, leaders: Mapping[int, tuple[str, int]]
    ) -> Mapping[int, _Places]:
        """Return the places of records by partition."""
        if self._options.key is KafkaKey.NONE:
            led = sorted(leaders)
            self._turn += 1
            return {led[self._turn % len(led)]: attempt.places}
        partitions: dict[bytes | None, int] = {}
        divided: dict[int, list[int]] = {}
        for place, (key, _) in enumerate(attempt.records):
            if key not in partitions:
                partitions[key] = self._codec.partition_of(key or b"", self._partitions)
            divided.setdefault(partitions[key], []).append(place)
        return divided

    async def _send(
        self,
        attempt: _Attempt,
        address: tuple[str, int],
        shares: dict[int, deque[_Places]],
        progress: Progress,
    ) -> None:
        """Send a leader the batches of its partitions, one of each partition at a time."""
        while shares:
            batches = {partition: waiting.popleft() for partition, waiting in shares.items()}
            try:
                codes = await self._produce(attempt, address, batches, progress)
            except HandlerError as error:
                self._leaders = None
                outcome = _outcome(error, may_have=True)
                for partition, places in batches.items():
                    attempt.fail(places, outcome)
                    _give_up(attempt, shares[partition], outcome)
                return
            for partition, places in batches.items():
                code = codes.get(partition, Code.UNKNOWN_SERVER_ERROR)
                self._take(attempt, places, code, shares[partition])
                if not shares[partition]:
                    del shares[partition]

    async def _produce(
        self,
        attempt: _Attempt,
        address: tuple[str, int],
        batches: Mapping[int, _Places],
        progress: Progress,
    ) -> Mapping[int, int]:
        """Return the error codes of partitions. Raises HandlerError."""
        broker = self._brokers.at(*address)
        encoded = {
            partition: await self._encode([attempt.records[place] for place in places])
            for partition, places in batches.items()
        }
        request = self._codec.produce_request(
            self._topic, encoded, acks=self._options.acks, timeout=self._timeout
        )
        answer = await broker.ask(request, progress, has_records=True)
        codes: Mapping[int, int] = self._codec.read_produced(answer, self._topic)
        return codes

    async def _encode(self, records: Sequence[Record]) -> bytes:
        def encode() -> bytes:
            batch: bytes = self._codec.record_batch(
                records, seconds=self._clock.time(), compression=self._options.compression
            )
            return batch

        if self._options.compression is KafkaCompression.NONE:
            return encode()
        # It takes longer than the event loop may wait.
        return await asyncio.to_thread(encode)

    def _take(self, attempt: _Attempt, places: _Places, code: int, waiting: deque[_Places]) -> None:
        """Take the broker's verdict on a batch; ``waiting``: the batches behind it."""
        if code == Code.NONE:
            attempt.succeed(places)
            return
        if code in ABOUT_RECORDS and len(places) > 1:
            # Halves show which record is refused, or were too large together.
            half = len(places) // 2
            if code != Code.INVALID_RECORD:
                size = sum(attempt.size(place) for place in places)
                self._batch_bytes = min(self._batch_bytes, max(size // 2, 1))
            waiting.extendleft((places[half:], places[:half]))
            return
        outcome = outcome_of(code, self._topic)
        attempt.fail(places, outcome)
        if code not in ABOUT_RECORDS:
            self._leaders = None
        _give_up(attempt, waiting, outcome)


def _give_up(attempt: _Attempt, waiting: deque[_Places], failure: DeliveryOutcome) -> None:
    """What comes behind a failed batch is not sent, to keep the order."""
    while waiting:
        attempt.fail(waiting.popleft(), unsent(failure))


def _outcome(error: HandlerError, *, may_have: bool) -> DeliveryOutcome:
    """``may_have``: the broker may have written what it was asked to."""
    if isinstance(error, _TopicError):
        return error.outcome
    if isinstance(error, NoAnswerError):
        return failure_outcome(error.failure)
    if isinstance(error, InvalidDestinationError):
        return DeliveryOutcome(DeliveryResult.FATAL_ERROR, str(error), hold=error.cause)
    result = DeliveryResult.POST_DELIVERY_ERROR if may_have else DeliveryResult.ERROR
    return DeliveryOutcome(result, str(error), cause=FailureCause.RESET)
