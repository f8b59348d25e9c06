"""The certificate that intake is served with: another one for the connections that come after it
has changed, while those that are there go on."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from cryptography import x509

from pillion_sidecar.clock import Timers
from pillion_sidecar.config.looking import Look, look_at
from pillion_sidecar.settings import TLSFiles

#: Seconds between two looks at the files.
LOOK_SECONDS = 1.0
Content = TypeVar("Content")
#: A look at each file; None for one that is not there.
Seen = tuple[Look | None, ...]
MAXIMUM_BYTES = 1 << 20


class Unusable(Exception):
    """Files cannot be used; the text names the file and says why."""


class Following(Generic[Content]):
    """Reads files when they have changed. One look at a time."""

    def __init__(
        self,
        files: Sequence[Path],
        *,
        read: Callable[[], Content],
        changed: Callable[[Content], None],
        refused: Callable[[Unusable], None],
    ) -> None:
        """``read`` is called in a thread and raises Unusable; the other two are told on the event
        loop, once for each change."""
        self._files = files
        self._read = read
        self._changed = changed
        self._refused = refused
        self._seen: Seen | None = None

    async def look(self) -> None:
        """Look at the files once, and read them if they have changed."""
        outcome = await asyncio.to_thread(self._look)
        if isinstance(outcome, Unusable):
            self._refused(outcome)
        elif outcome is not None:
            self._changed(outcome)

    def _look(self) -> Content | Unusable | None:
        seen = self._status()
        if seen == self._seen:
            return None
        outcome: Content | Unusable
        try:
            outcome = self._read()
        except Unusable as error:
            outcome = error
        # A swap while they were read may have mixed two contents: believe the next look.
        if self._status() != seen:
            return None
        self._seen = seen
        return outcome

    def _status(self) -> Seen:
        return tuple(map(_status, self._files))


async def look_again(followed: Sequence[Following[Any]], *, timers: Timers) -> None:
    """Look at files from time to time, for ever."""
    while followed:
        woken = asyncio.Event()
        timer = timers.call_later(LOOK_SECONDS, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()
        for following in followed:
            await following.look()


def read_bounded(path: Path, *, maximum: int) -> bytes:
    """Return a file's content. Raises Unusable where it cannot be read, or is too long."""
    try:
        with path.open("rb") as file:
            content = file.read(maximum + 1)
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror or error}") from None
    if len(content) > maximum:
        raise Unusable(f"{path}: longer than {maximum} bytes")
    return content


def _status(path: Path) -> Look | None:
    try:
        return look_at(path)
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its key, ready to serve."""

    context: ssl.SSLContext
    #: Seconds since the epoch.
    expires: float


def read_certificate(files: TLSFiles) -> Certificate:
    """Read certificate and key. Raises :class:`Unusable`."""
    content = read_bounded(files.certificate, maximum=MAXIMUM_BYTES)
    read_bounded(files.key, maximum=MAXIMUM_BYTES)
    try:
        expires = x509.load_pem_x509_certificates(content)[0].not_valid_after_utc.timestamp()
    except ValueError:
        raise Unusable(f"{files.certificate}: no certificate in PEM") from None
    context = _context()
    try:
        # No password: openssl would ask for one at the terminal.
        context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        # What openssl says names its own functions and reasons, and nothing of the key.
        reason = getattr(error, "reason", None) or type(error).__name__
        raise Unusable(
            f"{files.key}: does not go with {files.certificate}, or is no key in PEM ({reason})"
        ) from None
    return Certificate(context, expires)


class ServingTLS:
    """The TLS of a listener, whose certificate may come late and change."""

    def __init__(self) -> None:
        self._current: Certificate | None = None
        #: What the listener takes up connections with.
        self.context = _context()
        # Called once for each handshake, whether or not the client names a server.
        self.context.sni_callback = self._choose

    @property
    def has_certificate(self) -> bool:
        """Whether anybody can connect."""
        return self._current is not None

    def take(self, certificate: Certificate) -> None:
        """Show this certificate to whoever connects from now on."""
        self._current = certificate

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        # With no certificate there is nothing to agree on, and openssl refuses the handshake.
        if self._current is not None:
            connection.context = self._current.context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
