"""A client of a deliverer that gives the answers it was told."""

import json
from collections.abc import Mapping
from typing import Any

from pillion_cli.client import Answer, DelivererClient, Unreachable


class ScriptedClient(DelivererClient):
    """Gives one answer for each request; fails the test beyond them."""

    def __init__(self, *answers: Answer | Unreachable) -> None:
        super().__init__("http://127.0.0.1:1", timeout=1)
        #: The parameters of each request.
        self.asked: list[dict[str, object]] = []
        self._answers = list(answers)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Answer:
        self.asked.append({name: value for name, value in query.items() if value is not None})
        assert self._answers, "one request too many"
        answer = self._answers.pop(0)
        if isinstance(answer, Unreachable):
            raise answer
        return answer


def page(
    *numbers: int,
    through: int | None = None,
    more: bool = False,
    history: str = "one",
    status: int = 200,
    retry_after: float | None = None,
) -> Answer:
    """An answer of ``GET /v1/outcomes``; with another status one without outcomes."""
    lines = [json.dumps(line(number)).encode() + b"\n" for number in numbers]
    last = through if through is not None else max(numbers, default=0)
    return Answer(
        status,
        b"".join(lines),
        retry_after,
        headers={
            "pillion-history": history,
            "pillion-next-after": str(last),
            "pillion-more": "true" if more else "false",
        },
    )


def line(number: int, **members: Any) -> dict[str, Any]:
    return {
        "number": number,
        "time": "2026-11-22T09:00:00Z",
        "result": "discarded",
        "destination": "siem",
        "subscription": "to-siem",
        "class": "CIM_AlertIndication",
        "acceptedTime": "2026-11-22T08:00:00Z",
        **members,
    }
