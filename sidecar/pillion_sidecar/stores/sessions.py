"""The sessions of one namespace at a store: whose they are, which of them give way to others, and
which were forgotten. For one thread, as the store.

A session belongs to the service account that claimed it first: another one of the namespace neither
fences it nor reads it. What was forgotten still fences the writers that were fenced before.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.repair import write_whole
from pillion_sidecar.journal.segments import position_of, segment_name, segment_numbers
from pillion_sidecar.stores import copies
from pillion_sidecar.stores.copies import NO_EPOCH, Copy, Epoch, FencedError, StoreError
from pillion_sidecar.stores.extents import read_whole
from pillion_sidecar.stores.folders import Folders
from pillion_sidecar.stores.messages import (
    AppendRequest,
    ClaimRequest,
    CutRequest,
    IdentitiesRequest,
    KeepRequest,
    ReadRequest,
    ReleaseRequest,
    RemoveRequest,
    Request,
    WriterRequest,
    encode_identities,
)
from pillion_sidecar.stores.store import (
    BrokenError,
    ForbiddenError,
    QuotaError,
    SessionsError,
    Store,
    StoreLimits,
    read_promised,
)

#: In a session's folder: the account that claimed it first.
OWNER_NAME = "owner.json"
#: Beside the sessions' folders: what was forgotten.
FORGOTTEN_NAME = "forgotten.json"
#: Of these the oldest is dropped: each release writes them all.
MOST_FORGOTTEN = 1000


class _Owner(msgspec.Struct, frozen=True):
    account: str


class _Forgotten(NamedTuple):
    number: int
    claimant: str
    #: Seconds since the epoch.
    at: float
    #: Whether it had nothing pending.
    is_released: bool = False

    @property
    def epoch(self) -> Epoch:
        return Epoch(self.number, self.claimant)

    @property
    def label(self) -> Epoch:
        """What a released session is labelled with that begins anew: a store that missed the last
        bytes of this epoch has an earlier copy, which counts less."""
        return Epoch(self.number, f"{self.claimant} (released)")


_encode = msgspec.json.Encoder().encode
_decode_owner = msgspec.json.Decoder(_Owner).decode
_decode_forgotten = msgspec.json.Decoder(dict[str, _Forgotten]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    session: str
    #: The last claim; ``NO_EPOCH`` if its file cannot be read.
    epoch: Epoch
    #: Empty: claimed without a token.
    account: str
    size: int
    #: Position behind the copy; a crash may have left less.
    end: int
    #: Seconds since the last request of its writer.
    idle_seconds: float


class Sessions:
    """Blocks; all calls raise StoreError and OSError."""

    def __init__(
        self,
        folders: Folders,
        limits: StoreLimits,
        *,
        now: Callable[[], float] = time.time,
        dropped: Callable[[str, int, float], None] = lambda *_: None,
    ) -> None:
        """``dropped`` gets a session, its bytes and the seconds since its last request."""
        self._folders = folders
        self._limits = limits
        self._now = now
        self._dropped = dropped
        #: The last epochs, by session.
        self._forgotten = self._read_forgotten()
        self._store = Store(folders, limits)
        for session in [one for one in self._forgotten if one in self._store.sizes]:
            # A crash came before its folder was gone.
            self._store.forget(session)
        #: When its writer last asked for a change, in seconds since the epoch.
        self._used = {name: folders.changed_at(name) for name in self._store.sizes}
        self._owners: dict[str, str] = {}

    @property
    def count(self) -> int:
        return len(self._store.sizes)

    @property
    def total(self) -> int:
        """Bytes of all copies."""
        return self._store.total

    def perform(self, session: str, request: Request, *, account: str | None) -> Copy | bytes:
        """``account``: of the writer's token, empty without one; None: it may use every session."""
        if session in self._forgotten and session in self._store.sizes:
            # The disk refused to remove it before.
            self._remove(session)
        is_new = session not in self._store.sizes
        if not is_new:
            self._check_owner(session, account, claims=isinstance(request, ClaimRequest))
        match request:
            case ReadRequest() | IdentitiesRequest():
                return perform(self._store, session, request)
            case ReleaseRequest():
                return self._release(session, request.epoch)
        before = self._check_forgotten(session, request)
        try:
            answer = self._make_room(session, request)
            if before is not None:
                if before.is_released:
                    answer = self._store.label(session, before.label)
                # Last: with the note, a start removes the folder, and the note fences.
                self._write_forgotten({k: v for k, v in self._forgotten.items() if k != session})
            if is_new:
                self._note_owner(session, account)
        except (StoreError, OSError):
            if session in self._store.sizes:
                self._used.setdefault(session, self._now())
            raise
        self._used[session] = self._now()
        return answer

    def _make_room(self, session: str, request: Request) -> Copy | bytes:
        """Perform a request, if need be once others have given way."""
        while True:
            try:
                return perform(self._store, session, request)
            except QuotaError:
                most = self._limits.maximum_bytes - size_of(request)
                left = self._store.total - sum(size for _, size, _ in self._idle(besides=session))
                if left > most or not self.drop_idle(besides=session):
                    raise
            except SessionsError:
                if not self.drop_idle(besides=session, frees_bytes=False):
                    raise

    def statuses(self, *, after: str, limit: int) -> list[SessionStatus]:
        """Return sessions by name."""
        names = sorted(one for one in self._store.sizes if one > after)[:limit]
        return [self._status(one) for one in names]

    def _status(self, session: str) -> SessionStatus:
        files = self._folders.open(session)
        numbers = segment_numbers(files.names())
        size = self._store.sizes[session]
        end = 0
        if numbers:
            last = numbers[-1]
            end = position_of(last, files.size(segment_name(last)))
        try:
            epoch, account = read_promised(files, session), self._owner(session)
        except BrokenError:
            # Its writer is told. The others are listed.
            epoch, account = NO_EPOCH, ""
        return SessionStatus(
            session=session,
            epoch=epoch,
            account=account,
            size=size,
            end=end,
            idle_seconds=max(0.0, self._now() - self._used[session]),
        )

    # ------------------------------------------------------------------ owners

    def _check_owner(self, session: str, account: str | None, *, claims: bool) -> None:
        if account is None:
            return
        owner = self._owner(session)
        if owner and owner != account:
            raise ForbiddenError(f"the session is of {owner}, which claimed it first")
        if claims and account and not owner:
            # Before it, a crash came, or no tokens were asked for.
            self._note_owner(session, account)

    def _owner(self, session: str) -> str:
        owner = self._owners.get(session)
        if owner is None:
            files = self._folders.open(session)
            owner = ""
            if OWNER_NAME in files.names():
                remedy = f"move it away from session {session}"
                owner = _decoded(files, OWNER_NAME, _decode_owner, remedy).account
            self._owners[session] = owner
        return owner

    def _note_owner(self, session: str, account: str | None) -> None:
        if account:
            write_whole(self._folders.open(session), OWNER_NAME, _encode(_Owner(account)))
        self._owners[session] = account or ""

    # ------------------------------------------------------------------ forgetting

    def _release(self, session: str, epoch: Epoch) -> Copy:
        """Forget a session that has nothing pending, as its writer says."""
        before = self._forgotten.get(session)
        if before is None and session not in self._store.sizes:
            return Copy(promised=epoch)
        if before is None:
            copies.check_writer(self._store.copy(session), epoch)
            self._forget(session, epoch, is_released=True)
        elif epoch < before.epoch:
            raise _fenced(before)
        return Copy(promised=epoch)

    def _check_forgotten(self, session: str, request: WriterRequest) -> _Forgotten | None:
        """Return the note that a claim is to remove."""
        before = self._forgotten.get(session)
        if before is None:
            return None
        if request.epoch < before.epoch:
            raise _fenced(before)
        if not isinstance(request, ClaimRequest):
            return None
        if before.is_released and request.epoch == before.epoch:
            # It comes late: its writer has ended.
            raise _fenced(before)
        return before

    def drop_idle(self, *, besides: str, frees_bytes: bool = True) -> bool:
        """Forget the session that was idle longest, if that was too long."""
        for used, size, name in sorted(self._idle(besides=besides)):
            if frees_bytes and not size:
                continue
            try:
                epoch = read_promised(self._folders.open(name), name)
            except BrokenError:
                # Forgotten, it would fence nobody.
                continue
            self._forget(name, epoch)
            self._dropped(name, size, self._now() - used)
            return True
        return False

    def _idle(self, *, besides: str) -> list[tuple[float, int, str]]:
        """When each idle session was used last, with its size."""
        before = self._now() - self._limits.maximum_age
        sizes = self._store.sizes
        return [
            (used, sizes[name], name)
            for name, used in self._used.items()
            if used <= before and name != besides
        ]

    def _forget(self, session: str, epoch: Epoch, *, is_released: bool = False) -> None:
        kept = sorted(self._forgotten.items(), key=lambda one: one[1].at)[1 - MOST_FORGOTTEN :]
        # Before the folder goes: it fences, and a start goes on with the removal.
        forgotten = _Forgotten(*epoch, self._now(), is_released)
        self._write_forgotten({**dict(kept), session: forgotten})
        self._remove(session)

    def _remove(self, session: str) -> None:
        self._store.forget(session)
        self._used.pop(session, None)
        self._owners.pop(session, None)

    def _write_forgotten(self, forgotten: dict[str, _Forgotten]) -> None:
        write_whole(self._folders.own_files(), FORGOTTEN_NAME, _encode(forgotten))
        self._forgotten = forgotten

    def _read_forgotten(self) -> dict[str, _Forgotten]:
        files = self._folders.own_files()
        if FORGOTTEN_NAME not in files.names():
            return {}
        return _decoded(files, FORGOTTEN_NAME, _decode_forgotten, "move it away")


_Decoded = TypeVar("_Decoded")


def _decoded(files: Files, name: str, decode: Callable[[bytes], _Decoded], remedy: str) -> _Decoded:
    try:
        return decode(read_whole(files, name))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BrokenError(
            f"{name} cannot be read: {error}; see to the disk, and {remedy}"
        ) from error


def size_of(request: Request) -> int:
    """Return the bytes that a request adds to a copy."""
    return len(request.data) if isinstance(request, AppendRequest | KeepRequest) else 0


def _fenced(forgotten: _Forgotten) -> FencedError:
    return FencedError(
        f"{forgotten.claimant} had claimed the session under epoch {forgotten.number} before it was"
        " forgotten",
        promised=forgotten.epoch,
    )


def perform(store: Store, session: str, request: Request) -> Copy | bytes:
    """All but a release. Blocks; raises StoreError and OSError."""
    match request:
        case ClaimRequest():
            return store.claim(session, request.epoch)
        case CutRequest():
            return store.cut(session, request.epoch, request.position)
        case AppendRequest():
            return store.append(
                session, request.epoch, request.piece, request.data, base=request.base
            )
        case RemoveRequest():
            return store.remove(session, request.epoch, request.removal)
        case ReadRequest():
            return store.read(
                session, request.position, request.size, identities=request.identities
            )
        case KeepRequest():
            return store.keep(
                session, request.epoch, request.segment, request.data, first=request.first
            )
        case IdentitiesRequest():
            return encode_identities(store.identities(session))
        case ReleaseRequest():
            raise AssertionError("sessions release")
