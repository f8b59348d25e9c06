"""What a writer needs of its stores and of its own log."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pillion_sidecar.stores.copies import Copy, StoreError
from pillion_sidecar.stores.messages import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A store gave no answer of its own: the request may be done or not."""

    reason: str
    #: Seconds that it wants to be left alone.
    retry_after: float = 0.0


#: Bytes answer a ``ReadRequest``, and a copy all others.
Answer: TypeAlias = Copy | bytes | StoreError | Unanswered


class Transport(Protocol):
    """Calls back once, later, and never from within the call."""

    def send(self, store: str, request: Request, answered: Callable[[Answer], None]) -> None: ...


class ClosableTransport(Transport, Protocol):
    def close(self) -> None: ...


class LogReader(Protocol):
    """Calls back once, later, and never from within the call."""

    def read(self, position: int, size: int, done: Callable[[bytes], None]) -> None:
        """Read whole records of one segment from the disk: at most ``size`` bytes, or one record.
        None of them: the disk refuses."""

    def identities(self, number: int, done: Callable[[bytes], None]) -> None:
        """Read the file of identities of a removed segment. Nothing: the disk refuses, or the file
        is gone."""
