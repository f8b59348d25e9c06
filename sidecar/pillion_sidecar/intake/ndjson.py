"""Newline-delimited JSON, cut into lines as it streams in. No more than one line is held back."""

MAXIMUM_LINE_BYTES = 1 << 20


class LineSplitter:
    """Cuts chunks into lines. A line that is too long is skipped without being held."""

    def __init__(self, *, maximum_line_bytes: int = MAXIMUM_LINE_BYTES) -> None:
        self._maximum = maximum_line_bytes
        self._rest: list[bytes] = []
        #: Bytes of the line that is not whole yet.
        self.held = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Return the lines that a chunk ends, without their ends; None for one too long."""
        first, *others = chunk.split(b"\n")
        if not others:
            self._hold(first)
            return []
        lines: list[bytes | None] = [self._finish(first), *others[:-1]]
        if b"\r" in chunk:
            lines = [line.removesuffix(b"\r") if line is not None else None for line in lines]
        if len(chunk) > self._maximum:
            lines = [
                None if line is not None and len(line) > self._maximum else line for line in lines
            ]
        self._hold(others[-1])
        return lines

    def end(self) -> bytes | None:
        """Return the last line, which no newline ends; empty where there is none."""
        return self._finish(b"")

    def _hold(self, part: bytes) -> None:
        self.held += len(part)
        if self.held > self._maximum:
            self._rest.clear()
            self._skipping = True
            self.held = self._maximum + 1
        else:
            self._rest.append(part)

    def _finish(self, part: bytes) -> bytes | None:
        self._hold(part)
        line = None if self._skipping else b"".join(self._rest).removesuffix(b"\r")
        self._rest.clear()
        self.held = 0
        self._skipping = False
        return line
