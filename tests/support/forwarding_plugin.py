"""A plug-in for tests: posts each indication as a CloudEvent to FORWARD_TO. With ``--script`` it is
the command of ``pillion plugin exec``."""

import json
import os
import sys
import urllib.request
from collections.abc import Mapping
from typing import Any


def forward(class_name: str, properties: Mapping[str, Any]) -> None:
    """Raises OSError if the listener does not take it."""
    event = {
        "specversion": "1.0",
        "id": properties["IndicationIdentifier"],
        "source": "/plugin",
        "type": class_name,
        "data": {"class": class_name, "properties": properties},
    }
    content = {"Content-Type": "application/cloudevents+json"}
    request = urllib.request.Request(os.environ["FORWARD_TO"], json.dumps(event).encode(), content)
    urllib.request.urlopen(request, timeout=10).close()


if __name__ == "__main__":
    if "--script" in sys.argv:
        indication = json.load(sys.stdin)["indication"]
        forward(indication["class"], indication["properties"])
    else:
        from pillion_plugin import Delivery, run

        def deliver(delivery: Delivery) -> None:
            forward(delivery.class_name, delivery.properties)

        run(deliver, name="forwarding")
