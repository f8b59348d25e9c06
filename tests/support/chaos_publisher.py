"""A publisher in a process of its own, which may be killed at any moment.

``python -m support.chaos_publisher URL SOURCE RECORD STOP SEED`` publishes batches with
``ack=durable`` until the file STOP is there, and each until it is answered with success. Its record
says, line by line, which numbers it is about to send (``sending``) and which were acknowledged
(``acknowledged``), so that the next run goes on where this one was killed.
"""

import http.client
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

GROUPS = 4
#: Gives its groups' sequence as well (S1), so that nothing may pass a gap.
IN_SEQUENCE = "power"
LARGEST_BATCH = 12
#: Seconds: between two batches, and after one that was not answered with success.
PACE = 0.05
AGAIN = 0.1


def identifier(source: str, number: int) -> str:
    """The IndicationIdentifier of a source's number."""
    return f"{source}-{number:07d}"


def group(number: int) -> str:
    """The message group of a number."""
    return f"g{number % GROUPS}"


def line(source: str, number: int) -> bytes:
    """The indication, as it is published; always the same for one number."""
    document: dict[str, Any] = {
        "class": "CIM_AlertIndication",
        "source": source,
        "group": group(number),
        "properties": {
            "IndicationIdentifier": identifier(source, number),
            "AlertType": 5,
            "PerceivedSeverity": 6,
            "ProbableCause": 1,
            "Description": "x" * (number * 97 % 900),
        },
    }
    if source == IN_SEQUENCE:
        document |= {"sequence": number // GROUPS, "ordered": True}
    return json.dumps(document).encode() + b"\n"


class WrongAnswer(Exception):
    """The deliverer refused for good what is right."""


@dataclass(slots=True)
class Publisher:
    """Publishes to one deliverer, whatever happens to it."""

    url: str
    source: str
    record: Path
    draw: Random

    def run(self, stop: Path) -> None:
        """Publish until told to stop."""
        first, last = self._resume()
        while True:
            if last < first:
                last = first + self.draw.randrange(LARGEST_BATCH)
                self._note("sending", first, last)
            while not self._send(first, last):
                time.sleep(AGAIN)
            self._note("acknowledged", first, last)
            if stop.exists():
                return
            first = last + 1
            time.sleep(PACE * self.draw.random())

    def _resume(self) -> tuple[int, int]:
        """The numbers that were being sent; an empty range, from the next one, without any."""
        first, last = 0, -1
        if self.record.exists():
            for told in read_record(self.record):
                first, last = told["first"], told["last"]
                if told["what"] == "acknowledged":
                    first, last = last + 1, last
        return first, last

    def _note(self, what: str, first: int, last: int) -> None:
        told = json.dumps({"what": what, "first": first, "last": last}).encode() + b"\n"
        descriptor = os.open(self.record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, told)
        finally:
            os.close(descriptor)

    def _send(self, first: int, last: int) -> bool:
        body = b"".join(line(self.source, number) for number in range(first, last + 1))
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=5)
        try:
            connection.request(
                "POST",
                "/v1/indications?ack=durable",
                body=body,
                headers={"Content-Type": "application/x-ndjson"},
            )
            answer = connection.getresponse()
            content = json.loads(answer.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError):
            return False
        finally:
            connection.close()
        if any(refused["status"] == 400 for refused in content.get("refused", ())):
            raise WrongAnswer(content)
        if answer.status != 200:
            return False
        return bool(content["accepted"] + content["duplicate"] == last - first + 1)


def read_record(record: Path) -> list[dict[str, Any]]:
    """What a publisher has noted; a line that was being written when it was killed is none."""
    complete = record.read_bytes().rpartition(b"\n")[0]
    return [json.loads(told) for told in complete.splitlines()]


if __name__ == "__main__":
    Publisher(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Random(sys.argv[5])).run(
        Path(sys.argv[4])
    )
