"""A WBEM listener by pywbem: writes one JSON line for each indication, until SIGTERM.

    python pywbem_listener.py PORT RECORD

Port 0 takes a free one. The first line on standard output is the port.
"""

import json
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from pywbem import WBEMListener


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    port = int(sys.argv[1]) or free_port()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with Path(sys.argv[2]).open("a", buffering=1) as record:

        def received(indication: Any, host: str) -> None:
            line = {
                "identifier": indication.get("IndicationIdentifier"),
                "context": indication.get("SequenceContext"),
                "number": int(indication["SequenceNumber"]),
            }
            record.write(json.dumps(line) + "\n")

        listener = WBEMListener("127.0.0.1", http_port=port)
        listener.add_callback(received)
        listener.start()
        print(port, flush=True)
        ended.wait()
        # Takes nothing more, and writes down what it has answered.
        listener.stop()


if __name__ == "__main__":
    main()
