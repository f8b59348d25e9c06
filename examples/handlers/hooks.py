"""A webhook receiver: writes down each body that it accepts, and then answers 204.

    python hooks.py PORT RECORD [SECRET]

With a secret it takes only requests whose signature is right (Standard Webhooks), by the library of
that project, and answers 401 to others.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from standardwebhooks import Webhook, WebhookVerificationError


def accepted(body: bytes, headers: dict[str, str], secret: str | None) -> str:
    """Return the body as one line. Raises WebhookVerificationError, ValueError."""
    if secret is not None:
        Webhook(secret).verify(body, headers)
    return json.dumps(json.loads(body))


def main() -> None:
    port, file, *secrets = sys.argv[1:]
    secret = secrets[0] if secrets else None
    record = Path(file).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115 as long as it runs

    class Hook(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                record.write(accepted(body, dict(self.headers.items()), secret) + "\n")
            except WebhookVerificationError:
                self.send_response(401)
            except ValueError:
                self.send_response(400)
            else:
                self.send_response(204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", int(port)), Hook).serve_forever()


if __name__ == "__main__":
    main()
