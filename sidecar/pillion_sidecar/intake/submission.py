"""Acceptance of a decoded line (S1.2): not expired, no duplicate, and taken by the queues of all
targets or none. Identity and place in a message group are remembered afterwards, so a refusal
leaves no trace. States: :mod:`pillion_sidecar.reliability.states`."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeAlias

from pillion_sidecar.indication import Indication, Refusal, Target, Tracker, Unreached
from pillion_sidecar.intake.context import IntakeContext, IntakeObserver
from pillion_sidecar.intake.decoding import (
    MAXIMUM_GROUP_IDLE,
    Decoded,
    LineError,
    digest_of,
    expired_field,
)
from pillion_sidecar.intake.pacing import LinePacing, PublisherPaces
from pillion_sidecar.intake.redelivery import RepeatedLines
from pillion_sidecar.reliability.duplicates import IN_DELIVERY, Original
from pillion_sidecar.reliability.group_rules import Moment
from pillion_sidecar.reliability.identity import scoped
from pillion_sidecar.reliability.message_groups import FULL_RETRY_AFTER, Examined
from pillion_sidecar.reliability.receipts import Follower
from pillion_sidecar.reliability.states import Guard, State, Transition, step
from pillion_sidecar.telemetry.metrics import IntakeOutcome
from pillion_sidecar.trace_context import TraceContext
from pillion_sidecar.wire.submission import RefusedLine

#: Refused lines of one request that are listed.
MAXIMUM_REFUSED = 10_000
#: Seconds of Retry-After for a body interrupted by shutdown.
CLOSING_RETRY_AFTER = 1.0
#: Maximum seconds until ``groupExpires``, since groups that have one are remembered until then. One
#: day is added, so that 30 days by another clock fit.
MAXIMUM_GROUP_LIFE = MAXIMUM_GROUP_IDLE + 86_400
WRONG = 400
FOR_NOW = 429
#: A decoded line with its number, its identity and its targets.
Line: TypeAlias = tuple[Decoded, int, bytes | None, Sequence[Target]]


class Submission:
    """The lines of one request, accepted in order."""

    def __init__(
        self,
        *,
        context: IntakeContext,
        namespace: str | None = None,
        source: str | None = None,
        publisher: str | None = None,
        languages: tuple[str, ...] = (),
        trace: TraceContext | None = None,
        followers: tuple[Follower, ...] = (),
        redelivers: bool = False,
    ) -> None:
        """``namespace``: the publisher's; None without tokens. ``source``: default of the lines.
        ``publisher``: the request's ``Pillion-Publisher``. ``trace``: of lines without their own.
        ``redelivers``: whether duplicates are offered again to targets that missed them."""
        self.accepted = 0
        self.duplicate = 0
        #: Those of ``duplicate`` that were offered again.
        self.redelivered = 0
        self.refused: list[RefusedLine] = []
        #: Accepted lines without listener, by reason.
        self.unreached: dict[Unreached, int] = {}
        #: Permanent refusals in ``refused``; the others are temporary.
        self.wrong = 0
        #: Seconds after which temporarily refused lines can be sent again.
        self.retry_after = 0.0
        self._context = context
        self._reported = (0, 0, 0, 0)
        self._namespace = namespace
        self._source = source
        #: With the namespace.
        self.publisher_id = scoped(namespace, publisher)
        self._languages = languages
        self._trace = trace
        self._followers = followers
        self._trackers: tuple[Tracker, ...] = (context.memory, *followers)
        self._repeats: RepeatedLines | None = None
        if redelivers and context.redeliveries is not None:
            self._repeats = RepeatedLines(context.redeliveries)
        # A refusal that applies to all further lines.
        self._closed_all: Refusal | None = None
        self._pacing = LinePacing(namespace=namespace, publisher=publisher)
        # The least refused sequence of each ordered group: what follows would be out of order.
        self._closed_groups: dict[tuple[str | None, str], int] = {}
        # Destinations of refused lines, which later lines must not overtake, with the refusal.
        self._closed: dict[str, Refusal] = {}
        # Lines that wait for others, with their numbers, and the indices of those that expire.
        self._added: list[tuple[Decoded, int]] = []
        self._expiring: list[int] = []

    @property
    def full(self) -> bool:
        """Reading must stop: no further refusal can be reported, or nothing more is accepted."""
        return len(self.refused) >= MAXIMUM_REFUSED or self._context.closing is not None

    def report(self, observer: IntakeObserver, kind: str) -> None:
        """Report what was received since the last call."""
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

    def refuse(self, error: LineError, line: int) -> None:
        self.wrong += 1
        self.refused.append(
            RefusedLine(line=line, status=WRONG, reason=error.reason, field=error.field)
        )

    def add(self, decoded: Decoded, line: int) -> None:
        """Accept a line as :meth:`accept` does, with others or at the next :meth:`take`."""
        if decoded.member is not None or decoded.undeclared:
            self.take()
            self.accept(decoded, line)
            return
        if decoded.expires is not None:
            self._expiring.append(len(self._added))
        self._added.append((decoded, line))

    def take(self) -> None:
        """Accept the lines that were added."""
        added, self._added = self._added, []
        expiring, self._expiring = self._expiring, []
        before, context = len(self.refused), self._context
        if len(added) < 2 or context.closing is not None:
            for decoded, line in added:
                self.accept(decoded, line)
        else:
            self._accept_together(added, expiring)
        refused = self.refused
        if 0 < before < len(refused) and refused[before - 1].line > refused[before].line:
            # Invalid lines behind them were refused first.
            refused.sort(key=attrgetter("line"))

    def _accept_together(
        self, added: Sequence[tuple[Decoded, int]], expiring: Sequence[int]
    ) -> None:
        scope, source = self._namespace, self._source
        digests = [digest_of(decoded, decoded.source or source, scope) for decoded, _ in added]
        suspects = self._context.memory.suspects(digests)
        if expiring:
            now = self._context.clock.time()
            expired = {one for one in expiring if expired_field(added[one][0], now) is not None}
            suspects = sorted(expired.union(suspects))
        self._accept_runs(added, digests, suspects)

    def _accept_runs(
        self,
        added: Sequence[tuple[Decoded, int]],
        digests: Sequence[bytes | None],
        suspects: Sequence[int],
    ) -> None:
        """Accept those between ``suspects`` together."""
        begin = 0
        for suspect in (*suspects, len(added)):
            if begin < suspect:
                self._accept_new(added[begin:suspect], digests[begin:suspect])
            if suspect < len(added):
                self._accept(*added[suspect], digests[suspect])
            begin = suspect + 1

    def _accept_new(
        self, added: Sequence[tuple[Decoded, int]], digests: Sequence[bytes | None]
    ) -> None:
        """Accept lines that are surely no duplicates, and have not expired."""
        route = self._context.routes.route
        lines = [
            (one, line, digest, route(one.class_name, one.instance, one.source_namespace))
            for (one, line), digest in zip(added, digests, strict=True)
        ]
        if not self._closed and self._closed_all is None:
            lines = self._keep_all(lines)
        for line in lines:
            self._accept(*line)

    def _keep_all(self, lines: list[Line]) -> list[Line]:
        """Accept lines at once; return those that must be accepted one by one."""
        paces, source, within = self._context.paces, self._source, len(lines)
        now = self._context.clock.monotonic()
        if paces is not None:
            within = self._pacing.within(paces, [one[0].source or source for one in lines], now)
        # Nothing is kept of a line without target and identity.
        kept = [one for one in lines[:within] if one[2] is not None or one[3]]
        if not self._offer_all(kept, now):
            return lines
        if paces is not None:
            self._pacing.spend_all(paces, [one[0].source or source for one in kept], now)
        return [one for one in lines[:within] if one[2] is None and not one[3]] + lines[within:]

    def _offer_all(self, lines: Sequence[Line], now: float) -> bool:
        """Return False if each must be offered alone."""
        context = self._context
        source, scope, languages = self._source, self._namespace, self._languages
        trackers, publisher, trace = self._trackers, self.publisher_id, self._trace
        indications = [
            Indication(
                body=decoded.body,
                class_name=decoded.class_name,
                accepted_at=now,
                source=decoded.source or source,
                identifier=decoded.identifier,
                group=decoded.group and scoped(scope, decoded.group),
                expires=decoded.expires,
                digest=digest,
                languages=languages,
                trackers=trackers,
                unsettled=len(to),
                publisher=publisher,
                trace=decoded.trace or trace,
            )
            for decoded, _, digest, to in lines
        ]
        targets = [line[3] for line in lines]
        if not context.queues.offer_all(indications, targets):
            return False
        for follower in self._followers:
            follower.offered_all(indications, targets, [line[1] for line in lines])
        usual = [one for one in indications if one.unsettled and one.expires is None]
        context.memory.add_all([one.digest for one in usual if one.digest is not None], now)
        if len(usual) < len(indications):
            moment = Moment(now, context.clock.time())
            for one in indications:
                if one.expires is not None or not one.unsettled:
                    self._keep_identity(one, moment)
                if not one.unsettled:
                    self._note_unreached(one, ())
        self.accepted += len(indications)
        return True

    def accept(self, decoded: Decoded, line: int) -> None:
        """Accept a line, or note that it is a duplicate or refused."""
        closing = self._context.closing
        if closing is not None:
            self._turn_away(closing, line)
        else:
            self._accept(decoded, line, self._digest(decoded))

    def _digest(self, decoded: Decoded) -> bytes | None:
        return digest_of(decoded, decoded.source or self._source, self._namespace)

    def _accept(
        self,
        decoded: Decoded,
        line: int,
        digest: bytes | None,
        targets: Sequence[Target] | None = None,
    ) -> None:
        context = self._context
        # All conditions are judged as of this moment (S1.3).
        now = context.clock.monotonic()
        moment = None
        if decoded.expires is not None or decoded.member is not None:
            moment = Moment(now, context.clock.time())
            if self._is_untimely(decoded, moment, line):
                return
        source = decoded.source or self._source
        group = None if decoded.group is None else scoped(self._namespace, decoded.group)
        # A usual line makes no avoidable calls from here: each costs one per cent.
        original = None if digest is None else context.memory.find(digest, now)
        if original is not None and not original.is_gone:
            assert digest is not None
            self._repeat(decoded, source, group, moment, line, (digest, original))
            return
        if targets is None:
            targets = context.routes.route(
                decoded.class_name, decoded.instance, decoded.source_namespace
            )
        examined = None
        if moment is not None and decoded.member is not None:
            assert group is not None
            known = (digest, original) if digest is not None and original is not None else None
            passes_gaps = bool(targets) and all(target.relayed for target in targets)
            examined = self._examine(
                decoded, source, group, moment, line, passes_gaps=passes_gaps, known=known
            )
            if examined is None:
                return
            digest = digest or examined.digest
        indication = Indication(
            body=decoded.body,
            class_name=decoded.class_name,
            accepted_at=now,
            source=source,
            identifier=decoded.identifier,
            group=group,
            member=decoded.member,
            expires=decoded.expires,
            digest=digest,
            languages=self._languages,
            trackers=self._trackers,
            publisher=self.publisher_id,
            trace=decoded.trace or self._trace,
        )
        if context.paces is not None:
            self._keep_pace(context.paces, source, now)
        if self._offer(indication, targets, examined, line):
            self._remember(indication, moment, examined, original)
            if decoded.undeclared:
                context.undeclared.note(decoded.class_name)

    def _is_untimely(self, decoded: Decoded, moment: Moment, line: int) -> bool:
        """Refuse a line that has expired, or whose group would last too long."""
        expired = expired_field(decoded, moment.wall)
        if expired is not None:
            reason = "expired before it was accepted"
            self._reject(Guard.EXPIRED, line, reason=reason, field=expired)
            return True
        member = decoded.member
        ends = None if member is None else member.expires
        if ends is None or ends - moment.wall <= MAXIMUM_GROUP_LIFE:
            return False
        field = "groupExpires"
        reason = f"{field}: more than {MAXIMUM_GROUP_LIFE} seconds from now; give an earlier time"
        self.refuse(LineError(reason, field=field), line)
        return True

    def _repeat(
        self,
        decoded: Decoded,
        source: str | None,
        group: str | None,
        moment: Moment | None,
        line: int,
        original: tuple[bytes, Original],
    ) -> None:
        """Report a duplicate; note its place in a group that does not have it yet."""
        if decoded.member is not None and group is not None and moment is not None:
            refusal = self._context.groups.take_repeat(
                source=source,
                group=group,
                member=decoded.member,
                class_name=decoded.class_name,
                expires=decoded.expires,
                moment=moment,
                original=original[1],
            )
            if refusal is not None:
                self._reject(Guard.NO_ROOM, line, refusal=refusal)
                return
        self._tell_repeat(decoded, source, group, line, original)

    def _tell_repeat(
        self,
        decoded: Decoded,
        source: str | None,
        group: str | None,
        line: int,
        original: tuple[bytes, Original],
    ) -> None:
        """Report a duplicate, or keep it for :meth:`redeliver`."""
        digest, known = original
        if self._repeats is None or known.reason is None or known.pending or known.is_gone:
            self._reject(Guard.DUPLICATE, line, original=original)
            return
        indication = Indication(
            body=decoded.body,
            class_name=decoded.class_name,
            accepted_at=self._context.clock.monotonic(),
            source=source,
            identifier=decoded.identifier,
            group=group,
            languages=self._languages,
            trace=decoded.trace or self._trace,
        )
        has_expiry = decoded.expires is not None
        refusal = self._repeats.add(indication, digest, known, line, has_expiry=has_expiry)
        if refusal is not None:
            self._reject(Guard.NO_ROOM, line, refusal=refusal)

    async def redeliver(self) -> None:
        """After the last line: offer those duplicates again that some of their targets missed."""
        if self._repeats is None or not self._repeats:
            return
        for line, lost, healing in await self._repeats.redeliver():
            if lost.refusal is not None:
                self._reject(Guard.NO_ROOM, line, refusal=lost.refusal)
                continue
            self.redelivered += lost.offered > 0
            self._reject(Guard.DUPLICATE, line, original=(lost.digest, healing.original))
        self.refused.sort(key=lambda refused: refused.line)

    def close(self) -> None:
        """No line is accepted any more. Idempotent."""
        if self._repeats is not None:
            self._repeats.close()

    def _remember(
        self,
        indication: Indication,
        moment: Moment | None,
        examined: Examined | None,
        gone: Original | None,
    ) -> None:
        """``gone``: the discarded earlier indication with its identity, which nobody received."""
        self._pacing.spend(indication.accepted_at)
        if indication.digest is not None and gone is not None:
            self._context.memory.forget(indication.digest)
        self._keep_identity(indication, moment)
        self.accepted += 1
        if examined is not None:
            # Only now: it may discard the line, whose identity must be remembered by then.
            self._context.groups.proceed(examined)

    def _keep_identity(self, indication: Indication, moment: Moment | None) -> None:
        digest, expires, until = indication.digest, indication.expires, None
        if digest is not None:
            if moment is not None and expires is not None:
                until = moment.of_date(expires)
            self._context.memory.add(
                digest, indication.accepted_at, expires_at=until, pending=indication.unsettled > 0
            )

    def _examine(
        self,
        decoded: Decoded,
        source: str | None,
        group: str,
        moment: Moment,
        line: int,
        *,
        accepted: Moment | None = None,
        passes_gaps: bool = False,
        known: tuple[bytes, Original] | None = None,
    ) -> Examined | None:
        """Ask its group about a member; None if that rejects it. ``accepted``: by the sidecar that
        relays it; ``passes_gaps``: only gateways get it; ``known``: its discarded original."""
        groups, member = self._context.groups, decoded.member
        assert member is not None
        refused = self._closed_groups.get((source, group)) if self._closed_groups else None
        if refused is not None and member.ordered and member.sequence > refused:
            earlier = Refusal(0.0, f"member {refused} of its group was refused for now")
            self._reject(Guard.NO_ROOM, line, refusal=earlier)
            return None
        examined = groups.examine(
            source=source,
            group=group,
            member=member,
            size=len(decoded.body),
            moment=moment,
            accepted=accepted,
            passes_gaps=passes_gaps,
            namespace=self._namespace,
        )
        decision = examined.decision
        if step(State.READY, decision.ready).transition is Transition.ACCEPT:
            return examined
        if decision.ready is Guard.DUPLICATE:
            digest = groups.original_digest(examined)
            # If the identity is forgotten or was another, the original's end is unknown;
            # "delivered" might claim too much.
            found = self._context.memory.find(digest, moment.monotonic)
            original = known or (digest, IN_DELIVERY if found is None else found)
            self._tell_repeat(decoded, source, group, line, original)
            return None
        refusal = None
        if decision.ready is Guard.NO_ROOM:
            refusal = Refusal(FULL_RETRY_AFTER, decision.reason)
            # An ordered group has its order from its sequence, and a refused member may wait for a
            # later line.
            if not member.ordered:
                self._closed_all = self._closed_all or refusal
        self._reject(
            decision.ready, line, reason=decision.reason, field=decision.field, refusal=refusal
        )
        return None

    def _reject(
        self,
        guard: Guard,
        line: int,
        *,
        reason: str = "",
        field: str | None = None,
        original: tuple[bytes, Original] | None = None,
        refusal: Refusal | None = None,
        targets: Sequence[Target] = (),
    ) -> None:
        """Discard a ``ready`` line and tell its publisher why."""
        assert step(State.READY, guard).to is State.DISCARDED
        if original is not None:
            self.duplicate += 1
            for follower in self._followers:
                follower.repeated(*original, line)
        elif refusal is not None:
            self._refuse_for_now(refusal, targets, line)
        else:
            self.refuse(LineError(reason, field=field), line)

    def _keep_pace(self, paces: PublisherPaces, source: str | None, now: float) -> None:
        """Beyond a limit, refuse this line and all further ones: they would overtake it."""
        beyond = self._pacing.refusal(paces, source, now, has_closed=self._closed_all is not None)
        if beyond is not None:
            self._closed_all = beyond
            self._context.beyond_limit += 1

    def _offer(
        self,
        indication: Indication,
        targets: Sequence[Target],
        examined: Examined | None,
        line: int,
    ) -> bool:
        if self._closed or self._closed_all is not None:
            closed = self._closing_refusal(targets)
            if closed is not None:
                self._close_group(indication)
                self._reject(Guard.NO_ROOM, line, refusal=closed, targets=targets)
                return False
        for follower in self._followers:
            follower.offering(indication, targets, line)
        refusal = None
        if examined is not None:
            indication.group_run = examined.run
            refusal = self._context.groups.take(examined, indication, targets)
        # Without a target nothing is delivered, but an identity is journaled.
        elif targets or indication.digest is not None:
            refusal = self._context.queues.offer(indication, targets)
        if refusal is not None:
            self._take_back(indication, targets, refusal, line)
            return False
        if self._followers and indication.unsettled != len(targets):
            for follower in self._followers:
                follower.reduced(indication, targets)
        if not indication.unsettled:
            self._note_unreached(indication, targets)
        return True

    def _take_back(
        self, indication: Indication, targets: Sequence[Target], refusal: Refusal, line: int
    ) -> None:
        """Refuse an indication that its queues or its group cannot hold."""
        for follower in self._followers:
            follower.withdrawn(indication, targets)
        self._close_group(indication)
        if refusal.is_of_group:
            # Nobody else waits for it.
            targets = ()
        elif refusal.destination is None:
            self._closed_all = refusal
        self._reject(Guard.NO_ROOM, line, refusal=refusal, targets=targets)

    def _note_unreached(self, indication: Indication, targets: Sequence[Target]) -> None:
        reason = Unreached.SUPPRESSED
        if not targets:
            reason = Unreached.UNROUTED
        elif self._context.queues.have_ended(targets):
            if indication.relayed is not None:
                # It was accepted before for that subscription: this counts as a discard.
                return
            reason = Unreached.ENDED
        self.unreached[reason] = self.unreached.get(reason, 0) + 1
        self._context.unreached.note(reason, indication.class_name)
        for follower in self._followers:
            follower.unreached(reason)

    def _closing_refusal(self, targets: Sequence[Target]) -> Refusal | None:
        """Return the refusal of a line that would overtake a refused one, else None."""
        if self._closed_all is not None:
            return self._closed_all
        for target in targets:
            refusal = self._closed.get(target.destination)
            if refusal is not None:
                return refusal
        return None

    def _close_group(self, indication: Indication) -> None:
        member, group = indication.member, indication.group
        if member is not None and group is not None and member.ordered:
            self._closed_groups.setdefault((indication.source, group), member.sequence)

    def _turn_away(self, reason: str, line: int) -> None:
        self.retry_after = max(self.retry_after, CLOSING_RETRY_AFTER)
        self.refused.append(RefusedLine(line=line, status=FOR_NOW, reason=reason))

    def _refuse_for_now(self, refusal: Refusal, targets: Sequence[Target], line: int) -> None:
        for target in targets:
            self._closed.setdefault(target.destination, refusal)
        self.retry_after = max(self.retry_after, refusal.retry_after)
        self._context.held_back.note(refusal.reason)
        self.refused.append(
            RefusedLine(
                line=line,
                status=FOR_NOW,
                reason=refusal.reason,
                destination=refusal.destination,
            )
        )
