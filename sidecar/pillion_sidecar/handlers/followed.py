"""A small file that somebody else changes: read again when it has changed, and not otherwise."""

from pathlib import Path

from pillion_sidecar.config.looking import Look, look_at

#: Bytes of such a file that are taken at most.
MOST_BYTES = 1024 * 1024


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
