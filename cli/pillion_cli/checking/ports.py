"""What a check needs of the world."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pillion_operator.cluster.types import Object, ResourceType

#: The time, in seconds.
Monotonic = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Step:
    """A step that has ended."""

    name: str
    seconds: float
    #: None: it went well.
    failure: str | None

    def as_text(self) -> str:
        """A line for people."""
        if self.failure is not None:
            return f"FAILED  {self.name}: {self.failure}"
        return f"ok      {self.name} ({self.seconds:.1f} s)"

    def as_json(self) -> str:
        """A line for programs."""
        return json.dumps(
            {
                "step": self.name,
                "ok": self.failure is None,
                "seconds": round(self.seconds, 3),
                "failure": self.failure,
            }
        )


#: Shows a step as soon as it has ended.
Report = Callable[[Step], object]


class Cluster(Protocol):
    """The API server. The methods raise what ``pillion_operator.cluster.api.FAILURES`` names."""

    async def get(self, kind: ResourceType, namespace: str | None, name: str) -> Object | None: ...

    async def create(self, body: Object, *, dry_run: bool = False) -> Object: ...

    async def delete(self, kind: ResourceType, namespace: str | None, name: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the gateway's door; ``document`` is empty where it has no JSON object."""

    status: int
    text: str
    document: Mapping[str, Any]


class Door(Protocol):
    """The gateway's door. Raises OSError where nobody answers, or not whom ``ca`` vouches for."""

    async def publish(
        self, indication: Object, *, ca: str, token: str | None, wait: float
    ) -> Reply:
        """Publish with ``ack=delivered``. ``ca`` is PEM; ``wait`` in seconds."""


class Arrivals(Protocol):
    """The listener's side."""

    async def arrived(self, identifier: str) -> None:
        """Wait until the indication has arrived."""
