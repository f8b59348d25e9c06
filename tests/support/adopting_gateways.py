"""Gateways that keep copies and adopt, as the operator asks them."""

import json
from dataclasses import dataclass, field
from typing import Any


def session(number: int) -> str:
    return f"{number:032x}"


@dataclass
class Copies:
    """What one gateway answers to the operator. Adoptions are done by ``finish``."""

    #: The claimant of each session, and the number of its claim.
    copies: dict[str, tuple[str, int]] = field(default_factory=dict)
    adoptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    orders: list[dict[str, Any]] = field(default_factory=list)
    #: Answered to an order; None: it is taken.
    refusal: tuple[int, str] | None = None
    #: Begins every adoption.
    begin: dict[str, Any] = field(default_factory=lambda: {"state": "Sending", "pending": 3})
    keeps: bool = True

    def keep(self, number: int, claimant: str, *, epoch: int = 1) -> None:
        self.copies[session(number)] = claimant, epoch

    def answer(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        if path == "/v1/journals":
            return self._listed()
        if method == "GET":
            return 200, json.dumps({"adoptions": list(self.adoptions.values())}).encode()
        assert (method, path) == ("POST", "/v1/adoptions")
        assert body is not None
        order = json.loads(body)
        self.orders.append(order)
        if self.refusal is not None:
            status, reason = self.refusal
            return status, json.dumps({"reason": reason}).encode()
        known = {"session": order["session"], "service": order["service"]}
        status_of = self.adoptions[order["session"]] = known | self.begin
        return 202, json.dumps(status_of).encode()

    def _listed(self) -> tuple[int, bytes]:
        if not self.keeps:
            return 404, b'{"reason": "no copies"}'
        journals = [
            {
                "session": name,
                "claimant": claimant,
                "epoch": epoch,
                "bytes": 1,
                "end": "1",
                "idleSeconds": 1.0,
            }
            for name, (claimant, epoch) in sorted(self.copies.items())
        ]
        return 200, json.dumps({"journals": journals, "next": None}).encode()

    def change(self, number: int, **status: Any) -> None:
        self.adoptions[session(number)] |= status

    def finish(self, number: int, **counts: int) -> None:
        done = {"state": "Done", "pending": 0, "problem": None, "endedSeconds": 1.0}
        self.change(number, **done, **({"taken": 3} | counts))
