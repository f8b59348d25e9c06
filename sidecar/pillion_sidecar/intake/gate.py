"""Whether intake is open, and for how many requests at a time."""

MAXIMUM_REQUESTS = 512


class IntakeGate:
    """Closed until the configuration is loaded, and again from shutdown on."""

    def __init__(self, *, maximum_requests: int = MAXIMUM_REQUESTS) -> None:
        self._reason: str | None = "the configuration is not loaded yet"
        self._maximum = maximum_requests
        self._inside = 0

    @property
    def is_open(self) -> bool:
        """Whether publishers are let in."""
        return self._reason is None

    def open(self) -> None:
        """Let publishers in."""
        self._reason = None

    def close(self, reason: str) -> None:
        """Answer 503 with a reason from now on. Requests that are inside go on."""
        self._reason = reason

    def enter(self) -> str | None:
        """Let one request in, or return why not. Whoever came in must leave."""
        if self._reason is not None:
            return self._reason
        if self._inside >= self._maximum:
            return f"{self._maximum} requests are being read or waited for already"
        self._inside += 1
        return None

    def leave(self) -> None:
        """One request has been answered."""
        self._inside -= 1
