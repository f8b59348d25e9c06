"""Replays of a sidecar and of its gateway."""

from pathlib import Path
from typing import Any

from support.resources import JSON, document, write
from support.running import alerts
from support.sidecar import Sidecar


def replay(name: str, to: str, **spec: Any) -> JSON:
    given = {"destinationRef": {"name": to}, "from": "2000-01-01T00:00:00Z", **spec}
    return document("IndicationReplay", name, given)


def keep_all(folder: Path) -> None:
    """Have both histories keep every body."""
    file = folder / "resources.yaml"
    durable = '"durability": "Disk"'
    text = file.read_text().replace(durable, f'{durable}, "history": {{"bodies": "All"}}')
    file.write_text(text)


async def completed(deliverer: Sidecar) -> dict[str, Any]:
    """Wait until its only replay is complete."""
    while True:
        for one in (await deliverer.get("/v1/replays")).document["replays"]:
            if one["state"] == "Complete":
                return dict(one)


async def test_each_replays_its_own_history(house: Any) -> None:
    count = 50
    house.configure("siem", direct=("ops",))
    folder = house.folder / "resources"
    keep_all(folder)
    await house.start_gateway()
    await house.start_sidecar()
    await house.sidecar.publish(*alerts(0, count), query="ack=durable")
    for name in ("siem", "ops"):
        await house.listener.until(lambda name=name: len(house.listener.at(name)) >= count)
    # The gateway has delivered to siem, the sidecar to ops.
    write(folder, replay("by-gateway", "siem", serviceRef={"name": "shared"}), file="a.yaml")
    found = await completed(house.gateway)
    write(folder, replay("by-sidecar", "siem"), file="b.yaml")
    for one in (found, await completed(house.sidecar)):
        assert (one["replayed"], one["delivered"], one["leftOut"]) == (count, count, {}), one
    await house.listener.until(lambda: len(house.listener.at("siem")) >= 3 * count)
    for number in range(count):
        assert house.listener.at("siem").count(str(number)) == 3
