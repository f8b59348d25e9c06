"""A listener for CloudEvents in a process of its own, which may be killed at any moment.

``python -m support.chaos_listener PORT RECORD [PORT RECORD …]``: one line of JSON goes into the
record for each indication that arrives, before it is answered: which one, its sequence identifier,
and a number that no other connection has.
"""

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path

_ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Recorder:
    """Takes whatever comes, and writes it down first."""

    def __init__(self, record: Path) -> None:
        # Unbuffered: what is written outlives the process.
        self._record = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of the deliverer."""
        connection = uuid.uuid4().hex
        try:
            while True:
                body = await _request(reader)
                self._take(json.loads(body), connection)
                writer.write(_ANSWER)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    def _take(self, event: dict[str, object], connection: str) -> None:
        data = event["data"]
        assert isinstance(data, dict)
        properties = data["properties"]
        line = {
            "identifier": properties["IndicationIdentifier"],
            "context": properties.get("SequenceContext"),
            "number": properties.get("SequenceNumber"),
            "connection": connection,
        }
        os.write(self._record, json.dumps(line).encode() + b"\n")


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return await reader.readexactly(int(value))
    raise ConnectionError("a request without a length")


async def main(places: list[tuple[int, Path]]) -> None:
    """Listen for ever."""
    for port, record in places:
        await asyncio.start_server(Recorder(record).serve, "127.0.0.1", port)
    print(json.dumps({"listening": [port for port, _ in places]}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    given = iter(sys.argv[1:])
    asyncio.run(
        main([(int(port), Path(record)) for port, record in zip(given, given, strict=True)])
    )
