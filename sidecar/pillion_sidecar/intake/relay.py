"""The gateway's side of the relay: indications that sidecars have accepted."""

import math
from collections.abc import Sequence
from typing import Any, Union

import msgspec

from pillion_cim.model import ILLEGAL_IN_XML, is_language_tag
from pillion_cim.schema import Schema
from pillion_sidecar.indication import (
    REDRIVEN_ELSEWHERE,
    DeadLetter,
    Indication,
    Refusal,
    Relayed,
    Target,
)
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.decoding import (
    ENVELOPE,
    MEMBERSHIP,
    Decoded,
    LineError,
    decode_object,
    parse_expires,
    parse_member,
)
from pillion_sidecar.intake.fast_path import (
    MEMBERSHIP_TYPES,
    FastPath,
    membership_of,
)
from pillion_sidecar.intake.parameters import UNMARKED, RelayMarks
from pillion_sidecar.intake.submission import Line, Submission
from pillion_sidecar.reliability.duplicates import Original
from pillion_sidecar.reliability.group_rules import Moment
from pillion_sidecar.reliability.identity import relayed_digest, scoped
from pillion_sidecar.reliability.receipts import Follower
from pillion_sidecar.reliability.states import Guard
from pillion_sidecar.wire.relay import (
    GREATEST_NUMBER,
    MAXIMUM_CONTEXT,
    MAXIMUM_LANGUAGES,
    MAXIMUM_UID,
    RelayedDiscard,
    RelayOrigin,
)

_MEMBERS = RelayOrigin.__struct_encode_fields__
_NEEDED = _MEMBERS[: -len(RelayOrigin.__struct_defaults__)]
#: Those of ``relay``, its four members, and their two texts.
_QUOTES_OF_RELAY = 2 * (1 + 4 + 2)
#: Members besides class and properties.
_BESIDE: Any = msgspec.defstruct(
    "Beside",
    [
        ("relay", RelayOrigin),
        ("languages", list[str] | None, None),
        *((name, str | None, None) for name in ENVELOPE),
        *((name, Union[MEMBERSHIP_TYPES[name], None], None) for name in MEMBERSHIP),  # noqa: UP007
    ],
    forbid_unknown_fields=True,
    frozen=True,
    gc=False,
)
#: Seconds that a sidecar waits if its subscription is not known.
UNKNOWN_RETRY_AFTER = 1.0


class RelayFastPath:
    """Decodes a line as sidecars write it: class and properties, then the rest, ``relay`` last.
    Returns None for every other."""

    def __init__(self, schema: Schema) -> None:
        """Compile a decoder for the classes of ``schema``: some milliseconds."""
        self._decode_body = FastPath(schema).decode
        self._decode_beside = msgspec.json.Decoder(_BESIDE).decode

    def decode(self, line: bytes) -> Decoded | None:
        """See :meth:`FastPath.decode`."""
        # The end of the properties. If this stands in a text, what precedes it is no JSON.
        end = line.find(b'},"')
        if end < 0 or line.find(b'},"', end + 3) >= 0:
            return None
        body = line[: end + 1] + b"}"
        decoded = self._decode_body(body)
        if decoded is None or decoded.body is not body:
            return None
        return self._decode_rest(decoded, b"{" + line[end + 2 :])

    def _decode_rest(self, plain: Decoded, rest: bytes) -> Decoded | None:
        if b"\\" in rest or not rest.isascii():
            return None
        try:
            parsed = self._decode_beside(rest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        languages: list[str] | None = parsed.languages
        if languages is not None and not _are_languages(languages):
            return None
        source, group, expires = parsed.source, parsed.group, parsed.expires
        envelope = (source, parsed.sourceNamespace, group, expires)
        if "" in envelope:
            return None
        # The decoder takes the last of duplicate members. Without backslashes each name and text
        # has two quotes, so equal counts prove that there are no duplicates: here the envelope's
        # names with their texts, then the rest.
        quotes = rest.count(b'"') - 4 * (4 - envelope.count(None)) - _QUOTES_OF_RELAY
        if languages is not None:
            quotes -= 2 + 2 * len(languages)
        membership: dict[str, Any] = {}
        if quotes:
            membership = membership_of(parsed)
            if quotes != 2 * len(membership) + 2 * ("groupExpires" in membership):
                return None
        expires_at = None if expires is None else parse_expires(expires)
        return Decoded(
            plain.body,
            plain.class_name,
            plain.instance,
            plain.identifier,
            source,
            parsed.sourceNamespace,
            group,
            expires_at,
            None,
            parse_member(
                membership,
                group=group,
                source=source,
                expires=expires_at,
                maximum_idle=math.inf,
            )
            if membership
            else None,
            () if languages is None else tuple(languages),
            parsed.relay,
        )


def decode_relayed(obj: Any, *, schema: Schema) -> Decoded:
    """Decode and validate completely: whoever has a sidecar's token could send anything. Raises
    :class:`LineError`."""
    if not isinstance(obj, dict):
        raise LineError('not an object; write {"class": …, "properties": {…}, "relay": {…}}')
    ordinary = dict(obj)
    relay, languages = ordinary.pop("relay", None), ordinary.pop("languages", [])
    origin = _origin(relay)
    if not isinstance(languages, list) or not _are_languages(languages):
        raise LineError(
            f"languages: not a list of at most {MAXIMUM_LANGUAGES} language tags",
            field="languages",
        )
    # This service's declarations do not apply to indications that another accepted.
    return msgspec.structs.replace(
        # A sidecar of an earlier version may have accepted a longer idle time.
        decode_object(ordinary, schema=schema.base, maximum_idle=math.inf),
        languages=tuple(languages),
        relay=origin,
        undeclared=False,
    )


def _are_languages(languages: list[Any]) -> bool:
    return len(languages) <= MAXIMUM_LANGUAGES and all(
        isinstance(tag, str) and is_language_tag(tag) for tag in languages
    )


def _origin(given: Any) -> RelayOrigin:
    if not isinstance(given, dict):
        needed = ", ".join(_NEEDED)
        raise LineError(f"relay: give an object with {needed}", field="relay")
    for name in given:
        if name not in _MEMBERS:
            shown = f"relay.{name}"[:40]
            raise LineError(
                f"{shown}: unknown; relay has {', '.join(_MEMBERS)}",
                field=shown,
            )
    return RelayOrigin(
        _text(given, "subscription", maximum=MAXIMUM_UID),
        _accepted_at(given.get("acceptedAt")),
        _text(given, "context", maximum=MAXIMUM_CONTEXT),
        _number(given.get("number")),
        _discard(given["discard"]) if "discard" in given else None,
    )


def _discard(given: Any) -> RelayedDiscard:
    try:
        return msgspec.convert(given, RelayedDiscard)
    except msgspec.ValidationError as error:
        raise LineError(f"relay.discard: {error}"[:200], field="relay.discard") from None


def _text(given: dict[str, Any], name: str, *, maximum: int) -> str:
    value = given.get(name)
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= maximum
        or ILLEGAL_IN_XML.search(value) is not None
    ):
        raise LineError(
            f"relay.{name}: not a text of 1 to {maximum} characters that XML can carry",
            field=f"relay.{name}",
        )
    return value


def _accepted_at(value: Any) -> float:
    try:
        seconds = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        seconds = math.inf
    if not 0 <= seconds < math.inf:
        raise LineError(
            f"relay.acceptedAt: not a number of seconds since 1970: {value!r:.40}",
            field="relay.acceptedAt",
        )
    return seconds


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= GREATEST_NUMBER:
        raise LineError(
            f"relay.number: not an integer from 0 to {GREATEST_NUMBER}: {value!r:.40}",
            field="relay.number",
        )
    return value


def _whom(origin: RelayOrigin, discard: RelayedDiscard) -> str:
    """Tell dead letters of the same indication apart by the destinations that have lost it."""
    return f"{origin.subscription}/{discard.destination}"


def _dead_letter(told: RelayedDiscard) -> DeadLetter:
    return DeadLetter(
        destination=told.destination,
        reason=told.reason,
        detail=told.detail,
        attempts=told.attempts,
        at=told.at,
    )


class RelaySubmission(Submission):
    """The lines of a sidecar's request.

    A prefix is accepted: after the first temporary refusal all are refused, which keeps the order.
    ``expires`` and ``groupExpires`` refuse nothing here: the sidecar has checked them (S1.3).
    """

    def __init__(
        self,
        *,
        context: IntakeContext,
        namespace: str | None = None,
        followers: tuple[Follower, ...] = (),
        marks: RelayMarks = UNMARKED,
    ) -> None:
        """``namespace``: the sidecar's; None without tokens."""
        super().__init__(context=context, namespace=namespace, followers=followers)
        self._marks = marks
        # The refusal that applies to all further lines.
        self._stopped: Refusal | None = None

    def refuse(self, error: LineError, line: int) -> None:
        # They may stop it.
        self.take()
        if self._stopped is None:
            super().refuse(error, line)
        else:
            self._refuse_for_now(self._stopped, (), line)

    def _digest(self, decoded: Decoded) -> bytes:
        origin = decoded.relay
        assert origin is not None
        return relayed_digest(
            self._namespace,
            origin.subscription if origin.discard is None else _whom(origin, origin.discard),
            source=decoded.source,
            identifier=decoded.identifier,
            context=origin.context,
            number=origin.number,
        )

    def _accept_together(
        self, added: Sequence[tuple[Decoded, int]], expiring: Sequence[int]
    ) -> None:
        digests = [self._digest(decoded) for decoded, _ in added]
        self._accept_runs(added, digests, self._context.memory.suspects(digests))

    def _accept_new(
        self, added: Sequence[tuple[Decoded, int]], digests: Sequence[bytes | None]
    ) -> None:
        lines = [] if self._stopped is not None else self._known(added, digests)
        if not self._offer_all(lines, self._context.clock.monotonic()):
            for one in lines:
                self._accept(*one)
        for (decoded, line), digest in zip(added[len(lines) :], digests[len(lines) :], strict=True):
            self._accept(decoded, line, digest)

    def _known(
        self, added: Sequence[tuple[Decoded, int]], digests: Sequence[bytes | None]
    ) -> list[Line]:
        """Return lines with their targets, up to the first whose subscription is not known."""
        relayed, lines = self._context.routes.relayed, list[Line]()
        targets: tuple[Target, ...] = ()
        for (decoded, line), digest in zip(added, digests, strict=True):
            origin = decoded.relay
            assert origin is not None
            target = relayed(origin.subscription, decoded.instance)
            if target is None:
                break
            # Queues look equal targets up once.
            if not targets or target is not targets[0]:
                targets = (target,)
            lines.append((decoded, line, digest, targets))
        return lines

    def _offer_all(self, lines: Sequence[Line], now: float) -> bool:
        context, moment = self._context, Moment(now, self._context.clock.time())
        usual = Relayed(now, moment.wall + context.memory.window_seconds)
        indications = [
            self._indication(decoded, line, digest, moment, usual)
            for decoded, line, digest, _ in lines
        ]
        for one in indications:
            one.unsettled = 1
        targets = [line[3] for line in lines]
        if not context.queues.offer_all(indications, targets):
            return False
        for follower in self._followers:
            follower.offered_all(indications, targets, [line[1] for line in lines])
        until = moment.of_date(usual.remembered_until)
        context.memory.add_all(
            [one.digest for one in indications if one.relayed is usual and one.digest is not None],
            now,
            expires_at=until,
        )
        for one in indications:
            if one.relayed is not usual:
                self._keep_identity(one, moment)
        self.accepted += len(indications)
        return True

    def _accept(
        self,
        decoded: Decoded,
        line: int,
        digest: bytes | None,
        targets: Sequence[Target] | None = None,
    ) -> None:
        context, origin = self._context, decoded.relay
        assert origin is not None
        assert digest is not None
        if self._stopped is not None:
            self._reject(Guard.NO_ROOM, line, refusal=self._stopped)
            return
        moment = Moment(context.clock.monotonic(), context.clock.time())
        original = context.memory.find(digest, moment.monotonic)
        if original is not None and not original.is_gone:
            group = self._group(decoded)
            self._repeat(decoded, decoded.source, group, moment, line, (digest, original))
            return
        if targets is None:
            target = context.routes.relayed(origin.subscription, decoded.instance)
            targets = () if target is None else (target,)
        if not targets:
            refusal = Refusal(
                UNKNOWN_RETRY_AFTER,
                f"no enabled subscription {origin.subscription} is relayed to this gateway, as far"
                " as it knows; its configuration may be on its way",
            )
            self._reject(Guard.NO_ROOM, line, refusal=refusal)
            return
        self._take((decoded, line, digest, targets), moment, original)

    def _group(self, decoded: Decoded) -> str | None:
        origin = decoded.relay
        assert origin is not None
        if decoded.group is None:
            return None
        return scoped(self._namespace, f"{origin.subscription}/{decoded.group}")

    def _take(self, taken: Line, moment: Moment, gone: Original | None) -> None:
        """``gone``: the discarded earlier indication with its identity."""
        decoded, line, digest, targets = taken
        usual = Relayed(moment.monotonic, moment.wall + self._context.memory.window_seconds)
        indication, examined = self._indication(decoded, line, digest, moment, usual), None
        if indication.group is not None and decoded.member is not None:
            origin = decoded.relay
            assert origin is not None
            wall = min(origin.accepted_at, moment.wall)
            examined = self._examine(
                decoded,
                decoded.source,
                indication.group,
                moment,
                line,
                accepted=Moment(indication.accepted_at, wall),
                known=None if gone is None or digest is None else (digest, gone),
            )
            if examined is None:
                return
        if self._offer(indication, targets, examined, line):
            self._remember(indication, moment, examined, gone)

    def _indication(
        self, decoded: Decoded, line: int, digest: bytes | None, moment: Moment, usual: Relayed
    ) -> Indication:
        """``usual``: unless its ``expires`` is later."""
        origin, relayed, expires = decoded.relay, usual, decoded.expires
        assert origin is not None
        if expires is not None and expires > usual.remembered_until:
            relayed = Relayed(usual.at, expires)
        return Indication(
            body=decoded.body,
            class_name=decoded.class_name,
            # A sidecar's clock may be ahead.
            accepted_at=moment.of_date(min(origin.accepted_at, moment.wall)),
            source=decoded.source,
            identifier=decoded.identifier,
            group=None if decoded.group is None else self._group(decoded),
            member=decoded.member,
            expires=decoded.expires,
            digest=digest,
            languages=decoded.languages,
            trackers=self._trackers,
            relayed=relayed,
            dead_letter=None if origin.discard is None else _dead_letter(origin.discard),
            redrives=REDRIVEN_ELSEWHERE if line in self._marks.repeated else 0,
            trace=self._marks.traces.get(line),
        )

    def _keep_identity(self, indication: Indication, moment: Moment | None) -> None:
        digest, relayed = indication.digest, indication.relayed
        assert moment is not None
        assert digest is not None
        assert relayed is not None
        self._context.memory.add(
            digest,
            relayed.at,
            expires_at=moment.of_date(relayed.remembered_until),
            pending=indication.unsettled > 0,
        )

    def _refuse_for_now(self, refusal: Refusal, targets: Sequence[Target], line: int) -> None:
        super()._refuse_for_now(refusal, targets, line)
        if self._stopped is None:
            reason = f"line {line} before it was refused for now: {refusal.reason}"
            self._stopped = Refusal(refusal.retry_after, reason, refusal.destination)
