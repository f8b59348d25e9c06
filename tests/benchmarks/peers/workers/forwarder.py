"""Posts each line of its input to one listener, and confirms it to rsyslog's omprog:
``forwarder.py URL TIMEOUT``.
"""

import sys
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit


def main(url: str, timeout: float) -> None:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=timeout)
    headers = {"Content-Type": "application/json"}
    print("OK", flush=True)
    for line in sys.stdin.buffer:
        try:
            connection.request("POST", parts.path, line.rstrip(b"\n"), headers)
            response = connection.getresponse()
            response.read()
            print("OK" if response.status < 300 else "refused", flush=True)
        except (OSError, HTTPException) as error:
            connection.close()
            print(f"failed: {error!r}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
