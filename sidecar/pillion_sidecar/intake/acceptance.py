"""Whether a decoded line is accepted (S1.2): not expired, not a duplicate, and taken by the queues
of all its targets or of none. Its identity is remembered only after that, so a refusal leaves no
trace."""

from collections.abc import Sequence
from dataclasses import dataclass

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.resources import Acknowledgement, Durability
from pillion_sidecar.indication import Indication, Tracker
from pillion_sidecar.intake.decoding import Decoded, InvalidLine
from pillion_sidecar.intake.ports import Queues, Refusal, Routes, Target
from pillion_sidecar.intake.statistics import IntakeObserver
from pillion_sidecar.reliability.duplicates import DuplicateMemory, Original, SequenceTracker
from pillion_sidecar.reliability.identity import identity_digest, sequence_digest
from pillion_sidecar.reliability.tracking import Follower
from pillion_sidecar.telemetry.metrics import IntakeKind, IntakeOutcome

#: Refused lines of one request that are told one by one.
MAXIMUM_REFUSED = 10_000

#: What a publisher whose body is cut short by shutdown is told to wait, in seconds.
CLOSING_RETRY_AFTER = 1.0

WRONG = 400
FOR_NOW = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedLine:
    """One line that was not accepted."""

    #: 0-based.
    line: int
    #: WRONG (never send it again) or FOR_NOW (send it later).
    status: int
    reason: str
    field: str | None = None
    destination: str | None = None


@dataclass(slots=True)
class Rooms:
    """The rooms behind intake. ``routes`` and ``acknowledgement`` change with the configuration,
    ``closing`` at the end."""

    clock: Clock
    memory: DuplicateMemory
    routes: Routes
    queues: Queues
    #: The level of a request that names none.
    acknowledgement: Acknowledgement = Acknowledgement.ACCEPTED
    #: What the journal can promise: ``durable`` needs Disk.
    durability: Durability = Durability.MEMORY
    #: Where publishers may have themselves called back: prefixes of URLs (S1.9).
    callbacks: tuple[str, ...] = ()
    #: Why nothing more is accepted, of bodies that are still being read either.
    closing: str | None = None


class Submission:
    """The lines of one request, accepted in their order."""

    def __init__(
        self,
        *,
        rooms: Rooms,
        source: str | None = None,
        languages: tuple[str, ...] = (),
        followers: tuple[Follower, ...] = (),
    ) -> None:
        """``source`` counts for the lines that give none."""
        self.accepted = 0
        self.duplicate = 0
        self.refused: list[RefusedLine] = []
        #: How many of ``refused`` are wrong; the others are refused for now.
        self.wrong = 0
        #: Seconds after which what was refused for now is worth sending again.
        self.retry_after = 0.0
        self._rooms = rooms
        self._reported = (0, 0, 0, 0)
        self._source = source
        self._languages = languages
        self._followers = followers
        self._trackers: tuple[Tracker, ...] = (rooms.memory, *followers)
        # All destinations of refused lines, which later lines must not overtake at any of them;
        # each with the one whose queue was full.
        self._closed: dict[str, str] = {}

    @property
    def full(self) -> bool:
        """Whether reading must stop: no further refusal can be told, or nothing more is taken."""
        return len(self.refused) >= MAXIMUM_REFUSED or self._rooms.closing is not None

    def report(self, observer: IntakeObserver, kind: IntakeKind) -> None:
        """Tell what has come since the last report."""
        counts = (self.accepted, self.duplicate, self.wrong, len(self.refused) - self.wrong)
        outcomes = (
            IntakeOutcome.ACCEPTED,
            IntakeOutcome.DUPLICATE,
            IntakeOutcome.INVALID,
            IntakeOutcome.REFUSED,
        )
        for outcome, count, before in zip(outcomes, counts, self._reported, strict=True):
            if count > before:
                observer.received(kind, outcome, count - before)
        self._reported = counts

    def refuse(self, error: InvalidLine, line: int) -> None:
        """Note a line that is wrong."""
        self.wrong += 1
        self.refused.append(
            RefusedLine(line=line, status=WRONG, reason=error.reason, field=error.field)
        )

    def accept(self, decoded: Decoded, line: int) -> None:
        """Accept a line, or note that it is a duplicate or refused."""
        rooms = self._rooms
        if rooms.closing is not None:
            self._turn_away(rooms.closing, line)
            return
        expires = decoded.expires
        if expires is not None and expires <= rooms.clock.time():
            self.refuse(InvalidLine("expired before it was accepted", field="expires"), line)
            return
        source = decoded.source or self._source
        digest = identity_digest(source, decoded.identifier)
        trackers = self._trackers
        if digest is None and decoded.sequence is not None:
            digest = sequence_digest(source, *decoded.sequence)
            trackers = (SequenceTracker(rooms.memory, digest), *self._followers)
        if digest is not None:
            original = rooms.memory.find(digest)
            if original is not None:
                self._repeat(digest, original, line)
                return
        now = rooms.clock.monotonic()
        indication = Indication(
            body=decoded.body,
            class_name=decoded.class_name,
            accepted_at=now,
            source=source,
            identifier=decoded.identifier,
            group=decoded.group,
            languages=self._languages,
            trackers=trackers,
        )
        targets = rooms.routes.route(decoded.class_name, decoded.instance, decoded.source_namespace)
        if not self._offer(indication, targets, line):
            return
        if digest is not None:
            until = None if expires is None else now + expires - rooms.clock.time()
            rooms.memory.add(digest, now, expires_at=until, pending=indication.unsettled > 0)
        self.accepted += 1

    def _repeat(self, digest: bytes, original: Original, line: int) -> None:
        self.duplicate += 1
        for follower in self._followers:
            follower.repeated(digest, original, line)

    def _offer(self, indication: Indication, targets: Sequence[Target], line: int) -> bool:
        if self._closed:
            for target in targets:
                full = self._closed.get(target.destination)
                if full is not None:
                    self._refuse_for_now(
                        Refusal(0.0, f"the queue of destination {full} is full", full),
                        targets,
                        line,
                    )
                    return False
        for follower in self._followers:
            follower.offering(indication, targets, line)
        # Without targets there is nothing to deliver, and nothing that could refuse.
        refusal = self._rooms.queues.offer(indication, targets) if targets else None
        if refusal is not None:
            for follower in self._followers:
                follower.withdrawn(indication, targets)
            self._refuse_for_now(refusal, targets, line)
            return False
        if self._followers and indication.unsettled != len(targets):
            for follower in self._followers:
                follower.reduced(indication, targets)
        return True

    def _turn_away(self, reason: str, line: int) -> None:
        self.retry_after = max(self.retry_after, CLOSING_RETRY_AFTER)
        self.refused.append(RefusedLine(line=line, status=FOR_NOW, reason=reason))

    def _refuse_for_now(self, refusal: Refusal, targets: Sequence[Target], line: int) -> None:
        for target in targets:
            self._closed.setdefault(target.destination, refusal.destination or target.destination)
        self.retry_after = max(self.retry_after, refusal.retry_after)
        self.refused.append(
            RefusedLine(
                line=line,
                status=FOR_NOW,
                reason=refusal.reason,
                destination=refusal.destination,
            )
        )
