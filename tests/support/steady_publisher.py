"""A program that publishes alerts to deliverers, again and again, until it is told to end."""

import itertools
import json
import platform
import sys
import time
import urllib.request

#: Seconds between two alerts to a deliverer.
PACE = 0.1


def publish(url: str, number: int) -> None:
    """Publish one alert to the deliverer at ``url``, and wait until it is on its disk."""
    properties = {
        "IndicationIdentifier": f"alert-{number}",
        "AlertType": 5,
        "PerceivedSeverity": 6,
        "ProbableCause": 94,
    }
    body = json.dumps({"class": "CIM_AlertIndication", "properties": properties}).encode()
    # Each pod's own: what two of them publish is not the same.
    query = f"source={platform.node()}&ack=durable"
    request = urllib.request.Request(f"{url}/v1/indications?{query}", data=body)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


if __name__ == "__main__":
    for number in itertools.count():
        for url in sys.argv[1:]:
            publish(url, number)
        time.sleep(PACE)
