"""Whether intake is open, and for how many requests at a time."""

from collections.abc import Callable

MAXIMUM_REQUESTS = 512

#: Told why the gate closes.
Interrupt = Callable[[str], None]


class IntakeGate:
    """Closed until the configuration is loaded, and again from shutdown on."""

    def __init__(self, *, maximum_requests: int = MAXIMUM_REQUESTS) -> None:
        self._reason: str | None = "the configuration is not loaded yet"
        self._maximum = maximum_requests
        self._inside: set[Interrupt] = set()

    @property
    def is_open(self) -> bool:
        """Whether publishers are let in."""
        return self._reason is None

    def problem(self) -> str | None:
        """Why publishers are not let in, for a probe."""
        return None if self.is_open else "intake is closed"

    def open(self) -> None:
        """Let publishers in."""
        self._reason = None

    def close(self, reason: str) -> None:
        """Answer 503 with a reason from now on, and interrupt the requests that are inside."""
        self._reason = reason
        for interrupt in list(self._inside):
            interrupt(reason)

    def enter(self, interrupt: Interrupt) -> str | None:
        """Let one request in, or return why not. Whoever came in must leave, by the same."""
        if self._reason is not None:
            return self._reason
        if len(self._inside) >= self._maximum:
            return f"{self._maximum} requests are being read or waited for already"
        self._inside.add(interrupt)
        return None

    def leave(self, interrupt: Interrupt) -> None:
        """The request has been answered."""
        self._inside.remove(interrupt)
