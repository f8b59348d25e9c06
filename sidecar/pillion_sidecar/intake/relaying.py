"""What a gateway takes from sidecars (the design's "The relay"): accepted once already, for one
subscription each, and taken over in the order in which they come, as far as that goes now.
"""

from collections.abc import Sequence

from pillion_sidecar.indication import Indication, Refusal, Relayed, Target
from pillion_sidecar.intake.acceptance import Rooms, Submission
from pillion_sidecar.intake.decoding import Decoded, InvalidLine
from pillion_sidecar.reliability.duplicates import Original
from pillion_sidecar.reliability.grouping import Examined
from pillion_sidecar.reliability.groups import Moment
from pillion_sidecar.reliability.identity import relayed_digest, scoped
from pillion_sidecar.reliability.states import Guard
from pillion_sidecar.reliability.tracking import Follower

#: What a sidecar is told to wait whose subscription is not known, in seconds.
UNKNOWN_RETRY_AFTER = 1.0


class RelaySubmission(Submission):
    """The lines of one request of a sidecar.

    A prefix of them is taken: after the first that is refused for now all are, so that nothing
    gets ahead of it. ``expires`` and ``groupExpires`` refuse nothing: they gated the acceptance by
    the sidecar, and what was accepted is not discarded for them (S1.3).
    """

    def __init__(
        self,
        *,
        rooms: Rooms,
        namespace: str | None = None,
        followers: tuple[Follower, ...] = (),
    ) -> None:
        """``namespace`` is the sidecar's, where it was asked for a token."""
        super().__init__(rooms=rooms, namespace=namespace, followers=followers)
        # Why what comes now is refused for now, whatever it is.
        self._stopped: Refusal | None = None

    def refuse(self, error: InvalidLine, line: int) -> None:
        """Note a line that is wrong."""
        if self._stopped is None:
            super().refuse(error, line)
        else:
            self._refuse_for_now(self._stopped, (), line)

    def accept(self, decoded: Decoded, line: int) -> None:
        """Take a line over, or note that it is a duplicate or refused."""
        rooms, origin = self._rooms, decoded.relay
        assert origin is not None
        if rooms.closing is not None:
            self._turn_away(rooms.closing, line)
            return
        if self._stopped is not None:
            self._reject(Guard.NO_ROOM, line, refusal=self._stopped)
            return
        moment = Moment(rooms.clock.monotonic(), rooms.clock.time())
        digest = relayed_digest(
            self._namespace,
            origin.subscription,
            source=decoded.source,
            identifier=decoded.identifier,
            context=origin.context,
            number=origin.number,
        )
        original = rooms.memory.find(digest, moment.monotonic)
        if original is not None and not original.is_gone:
            group = self._group(decoded)
            self._repeat(decoded, decoded.source, group, moment, line, (digest, original))
            return
        target = rooms.routes.relayed(origin.subscription, decoded.instance)
        if target is None:
            refusal = Refusal(
                UNKNOWN_RETRY_AFTER,
                f"no enabled subscription {origin.subscription} is relayed to this gateway, as far"
                " as it knows; its configuration may be on its way",
            )
            self._reject(Guard.NO_ROOM, line, refusal=refusal)
            return
        self._take(decoded, digest, target, moment, line, original)

    def _group(self, decoded: Decoded) -> str | None:
        origin = decoded.relay
        assert origin is not None
        if decoded.group is None:
            return None
        return scoped(self._namespace, f"{origin.subscription}/{decoded.group}")

    def _take(
        self,
        decoded: Decoded,
        digest: bytes,
        target: Target,
        moment: Moment,
        line: int,
        gone: Original | None,
    ) -> None:
        """``gone``: what has come before under its identity, and was discarded."""
        origin, rooms = decoded.relay, self._rooms
        assert origin is not None
        # A sidecar's clock may be ahead of this one.
        wall = min(origin.accepted_at, moment.wall)
        accepted_at = moment.of_date(wall)
        group, examined = None if decoded.group is None else self._group(decoded), None
        if group is not None and decoded.member is not None:
            examined = self._examine(
                decoded,
                decoded.source,
                group,
                moment,
                line,
                accepted=Moment(accepted_at, wall),
                known=None if gone is None else (digest, gone),
            )
            if examined is None:
                return
        remembered_until = moment.wall + rooms.memory.window_seconds
        if decoded.expires is not None:
            remembered_until = max(remembered_until, decoded.expires)
        indication = Indication(
            body=decoded.body,
            class_name=decoded.class_name,
            accepted_at=accepted_at,
            source=decoded.source,
            identifier=decoded.identifier,
            group=group,
            member=decoded.member,
            expires=decoded.expires,
            digest=digest,
            languages=decoded.languages,
            trackers=self._trackers,
            relayed=Relayed(moment.monotonic, remembered_until),
        )
        if self._offer(indication, (target,), examined, line):
            if gone is not None:
                # Nobody got it: it is remembered anew.
                rooms.memory.forget(digest)
            self._remember(indication, moment, examined)

    def _remember(
        self, indication: Indication, moment: Moment | None, examined: Examined | None
    ) -> None:
        digest, relayed = indication.digest, indication.relayed
        assert moment is not None
        assert digest is not None
        assert relayed is not None
        self._rooms.memory.add(
            digest,
            relayed.at,
            expires_at=moment.of_date(relayed.remembered_until),
            pending=indication.unsettled > 0,
        )
        self.accepted += 1
        if examined is not None:
            # Now: it may discard the line, which must find its identity remembered.
            self._rooms.groups.proceed(examined)

    def _refuse_for_now(self, refusal: Refusal, targets: Sequence[Target], line: int) -> None:
        super()._refuse_for_now(refusal, targets, line)
        if self._stopped is None:
            reason = f"line {line} before it was refused for now: {refusal.reason}"
            self._stopped = Refusal(refusal.retry_after, reason, refusal.destination)
