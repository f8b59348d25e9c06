"""A real Alertmanager."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from support.broker_programs import RECEIVERS, running

ALERTMANAGER = RECEIVERS.find("alertmanager")
WITHOUT_ALERTMANAGER = "Alertmanager is missing: make receivers builds it"
CONFIGURATION = "route: {receiver: none}\nreceivers: [{name: none}]\n"


@asynccontextmanager
async def alertmanager(place: Path, port: int, *, rules: str = "") -> AsyncIterator[str]:
    """Run it; yields the URL of its alerts."""
    # Beside the resources.
    folder = place / "alertmanager"
    folder.mkdir()
    file = folder / "alertmanager.yml"
    file.write_text(CONFIGURATION + rules)
    command = [
        str(ALERTMANAGER),
        f"--config.file={file}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        # One of its own.
        "--cluster.listen-address=",
    ]
    async with running(command, port=port, folder=folder):
        yield f"http://127.0.0.1:{port}/api/v2/alerts"
