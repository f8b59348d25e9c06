"""Asks a gateway for the copies that it keeps and for its adoptions, and orders one. Answers are
not trusted: see ``polling.client``."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import aiohttp

from pillion_operator.polling.client import LARGEST_PAGE, TOTAL_TIMEOUT
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.wire.adoptions import (
    AdoptionOrder,
    AdoptionStatus,
    encode,
    read_adoption,
    read_adoptions,
)
from pillion_sidecar.wire.journals import MOST_SESSIONS, JournalCopy, read_copies
from pillion_sidecar.wire.queues import AnswerError

#: Pages of copies: ten times the default of journalCopies.maximumSessions.
MOST_PAGES = 10
_PATH = "/v1/adoptions"
_LONGEST_REASON = 300
T = TypeVar("T")


class Asking(Protocol):
    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        address: str,
        token: str,
        seconds: float,
        most: int,
        body: bytes | None = None,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """See ``DelivererClient.ask``."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Why sessions of pods that are gone are not adopted."""

    #: CamelCase.
    reason: str
    #: With the remedy.
    message: str


class AskError(Exception):
    """A gateway gave no usable answer. The message is one line."""


class Refused(AskError):
    """The gateway says why."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class GatewayAdoptions:
    """Of one gateway pod. All methods raise AskError."""

    def __init__(self, client: Asking, *, address: str, token: str) -> None:
        self._client = client
        self._address = address
        self._token = token

    async def copies(self) -> list[JournalCopy]:
        found: list[JournalCopy] = []
        after = ""
        for _ in range(MOST_PAGES):
            query = {"limit": str(MOST_SESSIONS)} | ({"after": after} if after else {})
            page = _read(read_copies, await self._ask("GET", "/v1/journals", query=query))
            found += page.journals
            if page.next is None or page.next <= after:
                break
            after = page.next
        return found

    async def statuses(self) -> list[AdoptionStatus]:
        return _read(read_adoptions, await self._ask("GET", _PATH))

    async def order(self, order: AdoptionOrder) -> AdoptionStatus:
        return _read(read_adoption, await self._ask("POST", _PATH, body=encode(order)))

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> bytes:
        try:
            status, _, answer = await self._client.ask(
                method,
                path,
                query=query or {},
                address=self._address,
                token=self._token,
                seconds=TOTAL_TIMEOUT,
                most=LARGEST_PAGE,
                body=body,
            )
        except (AnswerError, TimeoutError, aiohttp.ClientError, OSError) as error:
            raise AskError("it does not answer the operator") from error
        if not 200 <= status <= 299:
            raise Refused(status, _reason(status, answer))
        return answer


def _read(read: Callable[[bytes], T], body: bytes) -> T:
    try:
        return read(body)
    except AnswerError as error:
        raise AskError(str(error)) from None


def _reason(status: int, answer: bytes) -> str:
    try:
        said = json.loads(answer)["reason"]
    except (ValueError, KeyError, TypeError, RecursionError):
        said = ""
    return one_line(f"HTTP {status}: {said}" if said else f"HTTP {status}", _LONGEST_REASON)
