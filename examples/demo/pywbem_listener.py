"""A WBEM listener by pywbem: writes one JSON line for each indication, until SIGTERM.

    python pywbem_listener.py PORT RECORD

Port 0 takes a free one. The first line on standard output is the port.
"""

import contextlib
import json
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from pywbem import WBEMListener


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    port = int(sys.argv[1]) or free_port()
    # Blocked in all threads, and waited for: a handler would run only once the main thread wakes.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
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
        signal.sigwait(signals)
        # Takes nothing more, and writes down what it has answered. pywbem's own thread may trip
        # over the end of its queue while it does; all has been written by then.
        with contextlib.suppress(AttributeError):
            listener.stop()


if __name__ == "__main__":
    main()
