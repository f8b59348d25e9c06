"""The token that a gateway is shown: read again as it rotates, and never on the event loop."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.looking import Look, look_at
from pillion_sidecar.config.resources import Credentials
from pillion_sidecar.handlers.http.exchange import authorization
from pillion_sidecar.handlers.http.target import InvalidDestinationError

#: Bytes of such a file that are taken at most.
MOST_BYTES = 1024 * 1024
#: Seconds for which it is taken to be what it was when its file was looked at.
LOOK_SECONDS = 1.0


class UnreadableFile(Exception):
    """The file is not there, cannot be read, or is too long. The text names it."""


class FollowedFile:
    """Gives the content of one file. It is read in a thread: no event loop waits for a disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: Look | None = None
        self._content = b""

    def read(self) -> bytes:
        """Return the content as it is now. Raises :class:`UnreadableFile`."""
        try:
            seen = look_at(self._path)
            if seen != self._seen:
                with self._path.open("rb") as file:
                    self._content = file.read(MOST_BYTES + 1)
                self._seen = seen
        except OSError as error:
            self._seen = None
            raise UnreadableFile(f"{self._path} cannot be read: {error.strerror}") from None
        if len(self._content) > MOST_BYTES:
            raise UnreadableFile(f"{self._path} is longer than {MOST_BYTES} bytes")
        return self._content

    def forget(self) -> None:
        """Read it again the next time, whether it looks changed or not."""
        self._seen = None


class NoToken(Exception):
    """There is no token to show. The text says why, and has nothing of it."""


#: Is told the Authorization line with its CRLF, or why there is none.
Tell = Callable[[bytes | NoToken], None]


class GatewayToken:
    """One token, for all that is relayed."""

    def __init__(self, file: FollowedFile, *, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._line = b""
        self._looked_at: float | None = None
        self._asking: list[Tell] = []

    def ask(self, tell: Tell) -> None:
        """Tell the token: at once where it is known, else once its file has been looked at."""
        looked_at = self._looked_at
        if looked_at is not None and self._clock.monotonic() - looked_at < LOOK_SECONDS:
            tell(self._line)
            return
        self._asking.append(tell)
        if len(self._asking) == 1:
            looking = asyncio.get_running_loop().run_in_executor(None, self._look)
            looking.add_done_callback(self._take)

    def forget(self) -> None:
        """Look again: a gateway did not accept it."""
        self._looked_at = None
        self._file.forget()

    def _look(self) -> bytes | NoToken:
        try:
            token = self._file.read().decode("latin-1")
            return authorization(Credentials(bearer_token=token))
        except (UnreadableFile, InvalidDestinationError) as error:
            return NoToken(f"the token for the gateway: {error}")

    def _take(self, looking: "asyncio.Future[bytes | NoToken]") -> None:
        if looking.cancelled():
            return
        found = looking.result()
        if isinstance(found, bytes):
            self._line, self._looked_at = found, self._clock.monotonic()
        asking, self._asking = self._asking, []
        for tell in asking:
            tell(found)
