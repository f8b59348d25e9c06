"""Who may see and do what in the console: TokenReview and SubjectAccessReview of the API server.
Answers are kept for a short time and in bounded number."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from pillion_operator.clock import Clock
from pillion_operator.cluster.types import Object
from pillion_sidecar.config.schema import GROUP

#: Seconds for which an answer holds: a token or a right that is withdrawn ends within them.
REVIEW_SECONDS = 30.0
#: Maximum kept answers: of tokens, and of rights.
MOST_TOKENS = 1024
MOST_RIGHTS = 16_384
#: Reviews in flight, and those that wait for their turn.
MOST_AT_ONCE = 8
MOST_WAITING = 512
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
#: Stands for every namespace, as in a SubjectAccessReview.
EVERY_NAMESPACE = ""

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Right(Enum):
    """A verb, and a subresource of IndicationServices."""

    #: States and numbers of queues.
    STATES = ("get", "queues")
    #: Attempts, identifiers, outcomes, and the content of indications.
    OUTCOMES = ("get", "outcomes")
    #: Buttons.
    ACT = ("update", "outcomes")


class TooManyReviews(Exception):
    """The caller may ask again later."""


class Reviewer(Protocol):
    async def review(self, path: str, body: Object) -> Object: ...


@dataclass(frozen=True, slots=True)
class Person:
    """The owner of a token. The token itself is not kept."""

    digest: bytes
    #: ``user``, ``groups``, ``uid`` and ``extra`` of a SubjectAccessReview.
    subject: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.subject["user"])


class _Kept(Generic[_Key, _Value]):
    """The latest answers, each for REVIEW_SECONDS."""

    def __init__(self, clock: Clock, *, most: int) -> None:
        self._clock = clock
        self._most = most
        self._found: OrderedDict[_Key, tuple[float, _Value]] = OrderedDict()

    def get(self, key: _Key) -> _Value | None:
        ends, value = self._found.get(key, (0.0, None))
        return value if self._clock.monotonic() < ends else None

    def put(self, key: _Key, value: _Value) -> None:
        self._found[key] = (self._clock.monotonic() + REVIEW_SECONDS, value)
        self._found.move_to_end(key)
        if len(self._found) > self._most:
            self._found.popitem(last=False)


class Access:
    """Raises the API server's FAILURES, and TooManyReviews."""

    def __init__(self, api: Reviewer, *, clock: Clock) -> None:
        self._api = api
        self._people: _Kept[bytes, Person] = _Kept(clock, most=MOST_TOKENS)
        self._rights: _Kept[tuple[bytes, Right, str], bool] = _Kept(clock, most=MOST_RIGHTS)
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._waiting = 0

    async def person(self, token: str) -> Person | None:
        """Return the owner of a token; None if the API server does not know it. That is not kept,
        or strangers would push out the others."""
        digest = hashlib.sha256(token.encode(errors="replace")).digest()

        async def ask() -> Person | None:
            body = _review("authentication.k8s.io/v1", "TokenReview", {"token": token})
            status = (await self._api.review(_TOKEN_REVIEWS, body)).get("status") or {}
            user = status.get("user") or {}
            if status.get("authenticated") is not True or not user.get("username"):
                return None
            subject = {
                "user": user["username"],
                "groups": user.get("groups") or [],
                "uid": user.get("uid") or "",
                "extra": user.get("extra") or {},
            }
            return Person(digest, subject)

        return await self._asked(self._people, digest, ask)

    async def may(self, person: Person, right: Right, namespace: str) -> bool:
        verb, subresource = right.value

        async def ask() -> bool | None:
            attributes = {
                "namespace": namespace,
                "group": GROUP,
                "resource": "indicationservices",
                "subresource": subresource,
                "verb": verb,
            }
            spec = {**person.subject, "resourceAttributes": attributes}
            body = _review("authorization.k8s.io/v1", "SubjectAccessReview", spec)
            status = (await self._api.review(_ACCESS_REVIEWS, body)).get("status") or {}
            return status.get("allowed") is True

        allowed = await self._asked(self._rights, (person.digest, right, namespace), ask)
        return allowed is True

    async def reads_everywhere(self, person: Person) -> bool:
        return await self.may(person, Right.STATES, EVERY_NAMESPACE)

    async def readable(self, person: Person, namespaces: Iterable[str]) -> frozenset[str]:
        """Return those of the namespaces whose states somebody may read."""
        wanted = sorted(namespaces)
        if await self.reads_everywhere(person):
            return frozenset(wanted)
        found: set[str] = set()
        for begin in range(0, len(wanted), MOST_AT_ONCE):
            part = wanted[begin : begin + MOST_AT_ONCE]
            answers = await asyncio.gather(
                *(self.may(person, Right.STATES, namespace) for namespace in part)
            )
            found.update(name for name, allowed in zip(part, answers, strict=True) if allowed)
        return frozenset(found)

    async def _asked(
        self, kept: _Kept[_Key, _Value], key: _Key, ask: Callable[[], Awaitable[_Value | None]]
    ) -> _Value | None:
        if (known := kept.get(key)) is not None:
            return known
        if self._waiting >= MOST_WAITING:
            raise TooManyReviews
        self._waiting += 1
        try:
            async with self._turns:
                # Another request of the same may have had its answer meanwhile.
                if (known := kept.get(key)) is not None:
                    return known
                answer = await ask()
        finally:
            self._waiting -= 1
        if answer is not None:
            kept.put(key, answer)
        return answer


def _review(api_version: str, kind: str, spec: Mapping[str, Any]) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec}
