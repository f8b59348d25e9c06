"""Reads a deliverer's answers about itself, its queues and its indications."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pillion_cli.client import Answer, DelivererClient, NoDeliverer
from pillion_sidecar.wire.diagnosis import Diagnosed, Endpoint, EndpointPage, read_answer
from pillion_sidecar.wire.journals import JournalCopy, JournalCopyPage
from pillion_sidecar.wire.queues import (
    AnswerError,
    QueueDetails,
    QueuePage,
    QueueStatus,
    converted,
)

#: Entries of one page, and maximum pages: ten times the destinations of a configuration.
PAGE = 1000
MOST_PAGES = 100

_Answer = TypeVar("_Answer", QueuePage, QueueDetails)


@dataclass(frozen=True, slots=True)
class QueueList:
    """All pages of ``GET /v1/queues``."""

    pages: list[QueuePage]
    #: As they came.
    documents: list[dict[str, Any]]
    #: Of the last page.
    headers: Mapping[str, str]

    @property
    def queues(self) -> list[QueueStatus]:
        return [queue for page in self.pages for queue in page.queues]


def answer_of(answer: Answer, kind: type[Diagnosed]) -> Diagnosed:
    """Return an answer as one of :mod:`pillion_sidecar.wire.diagnosis`. Raises :class:`Refused`."""
    if answer.status != 200:
        raise answer.refusal()
    try:
        return read_answer(answer.body, kind)
    except AnswerError as error:
        raise NoDeliverer(error) from None


def queue_of(client: DelivererClient, name: str) -> QueueDetails | None:
    """Return a queue; None if there is none of the name. Raises CommandError."""
    answer = client.get(f"/v1/queues/{name}")
    if answer.status == 404:
        return None
    return read(answer.document(), QueueDetails)


def read(document: Mapping[str, Any], kind: type[_Answer]) -> _Answer:
    """Raises :class:`NoDeliverer`."""
    try:
        return converted(document, kind)
    except AnswerError as error:
        raise NoDeliverer(error) from None


def queues_of(client: DelivererClient) -> QueueList:
    """Raises CommandError."""
    pages: list[QueuePage] = []
    documents: list[dict[str, Any]] = []
    after = ""
    while True:
        answer = client.get("/v1/queues", {"limit": PAGE, "after": after})
        documents.append(answer.document())
        pages.append(read(documents[-1], QueuePage))
        if pages[-1].next is None:
            return QueueList(pages, documents, answer.headers)
        after = _next(pages[-1].next, after, count=len(pages))


def endpoints_of(client: DelivererClient) -> list[Endpoint]:
    """Raises CommandError."""
    pages: list[EndpointPage] = []
    after = ""
    while True:
        answer = client.get("/v1/endpoints", {"limit": PAGE, "after": after})
        pages.append(answer_of(answer, EndpointPage))
        if pages[-1].next is None:
            return [endpoint for page in pages for endpoint in page.endpoints]
        after = _next(pages[-1].next, after, count=len(pages))


def journals_of(client: DelivererClient) -> list[JournalCopy]:
    """Raises CommandError."""
    pages: list[JournalCopyPage] = []
    after = ""
    while True:
        answer = client.get("/v1/journals", {"limit": PAGE, "after": after})
        pages.append(answer_of(answer, JournalCopyPage))
        told = pages[-1].next
        if told is None:
            return [one for page in pages for one in page.journals]
        # Not by order: that of namespaces and sessions is no order of texts.
        if told == after or len(pages) >= MOST_PAGES:
            raise NoDeliverer("its pages do not end")
        after = told


def _next(told: str, after: str, *, count: int) -> str:
    """Return the ``after`` of the next page. Raises :class:`NoDeliverer`."""
    if told <= after or count >= MOST_PAGES:
        raise NoDeliverer("its pages do not end")
    return told
