"""The Authorization line of requests: static, or from a rotating token."""

import asyncio
import base64
from collections.abc import Callable
from typing import Protocol

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.credentials import is_bearer_token
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import (
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
    HoldCause,
)
from pillion_sidecar.filewatch import FollowedFile, Unusable
from pillion_sidecar.handlers.errors import HandlerError, InvalidDestinationError

#: Seconds for which a token's file is not checked again.
LOOK_SECONDS = 1.0


class AuthorizationError(HandlerError):
    """There is no valid token. The text says why, and has no secret."""

    def __init__(self, message: str, *, hold: HoldCause | None = None) -> None:
        """``hold``: the fault of the destination, if that is the cause."""
        super().__init__(message)
        self.hold = hold

    @property
    def outcome(self) -> DeliveryOutcome:
        """The outcome of a request that was not sent, since there is no token."""
        if self.hold is None:
            return unsent_outcome(str(self))
        return DeliveryOutcome(DeliveryResult.FATAL_ERROR, str(self), hold=self.hold)


Tell = Callable[[bytes | AuthorizationError], None]


class Authorizer(Protocol):
    @property
    def line(self) -> bytes | None:
        """The line with its CRLF, empty if none is sent; None: unknown, so ask."""

    def ask(self, tell: Tell) -> None:
        """Tell the line: at once if it is known, else later."""

    def forget(self) -> bool:
        """The line was not accepted (401). Return whether the next attempt may have another."""

    def close(self) -> None:
        """Release what the destination holds; who asked hears nothing more."""


class StaticAuthorizer:
    def __init__(self, line: bytes = b"") -> None:
        self.line: bytes | None = line
        self._line = line

    def ask(self, tell: Tell) -> None:
        tell(self._line)

    def forget(self) -> bool:
        return False

    def close(self) -> None: ...


class TokenFileAuthorizer:
    """A bearer token that rotates in its file, which is checked in a thread."""

    def __init__(self, file: FollowedFile, *, clock: Clock, what: str) -> None:
        """``what``: the token's name in a failure's text."""
        self._file = file
        self._clock = clock
        self._what = what
        self._line = b""
        self._looked_at: float | None = None
        self._asking: list[Tell] = []

    @property
    def line(self) -> bytes | None:
        """The line, if its file was checked just now."""
        looked_at = self._looked_at
        if looked_at is not None and self._clock.monotonic() - looked_at < LOOK_SECONDS:
            return self._line
        return None

    def ask(self, tell: Tell) -> None:
        line = self.line
        if line is not None:
            tell(line)
            return
        self._asking.append(tell)
        if len(self._asking) == 1:
            looking = asyncio.get_running_loop().run_in_executor(None, self._look)
            looking.add_done_callback(self._take)

    def forget(self) -> bool:
        """Check the file again: the token was not accepted."""
        self._looked_at = None
        self._file.forget()
        return True

    def close(self) -> None:
        """Nothing: all relays share it."""

    def _look(self) -> bytes | AuthorizationError:
        try:
            token = self._file.read().decode("latin-1")
            return authorization(Credentials(bearer_token=token))
        except (Unusable, InvalidDestinationError) as error:
            return AuthorizationError(f"{self._what}: {error}")

    def _take(self, looking: "asyncio.Future[bytes | AuthorizationError]") -> None:
        if looking.cancelled():
            return
        found = looking.result()
        if isinstance(found, bytes):
            self._line, self._looked_at = found, self._clock.monotonic()
        asking, self._asking = self._asking, []
        for tell in asking:
            tell(found)


def authorization(credentials: Credentials | None) -> bytes:
    """Return the line with its CRLF; empty without credentials. Raises InvalidDestinationError if a
    header cannot carry them."""
    if credentials is None:
        return b""
    if credentials.bearer_token is not None:
        token = credentials.bearer_token.strip()
        if not is_bearer_token(token):
            raise InvalidDestinationError(
                "the bearer token has characters that no token has", cause=HoldCause.CREDENTIALS
            )
        return b"Authorization: Bearer " + token.encode("ascii") + b"\r\n"
    username, password = credentials.username, credentials.password
    if username is None:
        return b""
    if ":" in username:
        raise InvalidDestinationError(
            "the username must not hold a colon (RFC 7617)", cause=HoldCause.CREDENTIALS
        )
    if not (username and password and (username + password).isprintable()):
        raise InvalidDestinationError(
            "the username or the password is empty, or holds control characters (RFC 7617)",
            cause=HoldCause.CREDENTIALS,
        )
    pair = f"{username}:{password}".encode()
    return b"Authorization: Basic " + base64.b64encode(pair) + b"\r\n"


def unsent_outcome(reason: str) -> DeliveryOutcome:
    """The outcome of a request that was not sent; it spends no attempt."""
    return DeliveryOutcome(
        DeliveryResult.ERROR, reason, spends_attempt=False, cause=FailureCause.CREDENTIALS
    )
