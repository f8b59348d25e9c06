"""Reads a deliverer's answers about itself, its queues and its indications."""

from pillion_cli.client import Answer, DelivererClient, NoDeliverer
from pillion_sidecar.wire.diagnosis import Diagnosed, read_answer
from pillion_sidecar.wire.queues import AnswerError, QueueDetails, converted


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
    try:
        return converted(answer.document(), QueueDetails)
    except AnswerError as error:
        raise NoDeliverer(error) from None
