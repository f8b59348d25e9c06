"""``python -m support.afternoon_screens``: make the pictures of the page of the afternoon anew.

It wants Chromium and its driver. With ``--width`` it photographs every screen at that width
instead, to be looked at.
"""

import argparse
import asyncio
import base64
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.afternoon import SHOWN_PORT, Afternoon, afternoon
from support.browser import Browser, browser
from support.house import ROOT

ASSETS = ROOT / "docs" / "assets"
WIDE, PHONE = 1000, 360
#: Pixels of a picture's height, at most.
HIGHEST = 620
_LIVE = "document.getElementById('link').textContent === 'Live'"
_ROWS = "document.querySelectorAll('{} tbody tr').length >= {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """Photographs pages of the console into a folder."""

    page: Browser
    console: str
    into: Path
    #: In place of each picture's own.
    width: int | None

    async def shoot(
        self, name: str, fragment: str = "#/", *, width: int = WIDE, until: str, press: str = ""
    ) -> None:
        """Photograph a page once a condition holds; or the question of a button."""
        await asyncio.to_thread(self._shoot, name, fragment, self.width or width, (until, press))

    def _shoot(self, name: str, fragment: str, width: int, wait: tuple[str, str]) -> None:
        until, press = wait
        self.page.resize(width, HIGHEST)
        self.page.open(f"{self.console}{fragment}")
        self.page.until(f"{_LIVE} && {until}")
        if press:
            self.page.run("document.querySelector(arguments[0]).click()", press)
            self.page.until("document.getElementById('ask').open")
        height = self.page.run("return document.body.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, self._highest), "scale": 1}
        shot = self.page.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {"format": "png", "clip": clip, "captureBeyondViewport": True},
        )
        path = self.into / f"afternoon-{name}.png"
        path.write_bytes(base64.b64decode(shot["data"]))
        print(f"{path.name}: {path.stat().st_size // 1000} kB", flush=True)

    @property
    def _highest(self) -> int:
        return 3 * HIGHEST if self.width else HIGHEST


async def shoot_all(story: Afternoon, camera: Camera) -> None:
    """Tell the story, and photograph it."""
    await story.breaks()
    rows = _ROWS.format("#queues", 3)
    await camera.shoot("console", until=rows)
    await camera.shoot("phone", width=PHONE, until=rows)
    await camera.shoot("destination", "#/destination/siem", until=_ROWS.format("#attempts", 20))
    await story.passes()
    discards = _ROWS.format("#discards", 50)
    await camera.shoot("discards", "#/destination/siem", until=discards)
    await story.is_mended()
    await story.pillion("pillion drain")
    await story.catches_up()
    await camera.shoot(
        "redrive",
        "#/destination/siem",
        until=discards,
        press="[data-action=redrive]",
    )
    await story.pillion("pillion discarded redrive --destination siem --yes")
    await story.ends()
    await camera.shoot("way", "#/search/c-40", until=_ROWS.format("#way", 5))


async def run(into: Path, width: int | None) -> None:
    with tempfile.TemporaryDirectory() as folder, browser() as page:
        async with afternoon(Path(folder), port=SHOWN_PORT) as story:
            console = f"{story.run.deliverer.intake_url}/console"
            await shoot_all(story, Camera(page=page, console=console, into=into, width=width))


def main(arguments: Sequence[str]) -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m support.afternoon_screens", description=__doc__
    )
    parser.add_argument("--into", type=Path, default=ASSETS, help="their folder [docs/assets]")
    parser.add_argument("--width", type=int, help="of all, in pixels [that of the page]")
    chosen = parser.parse_args(arguments)
    asyncio.run(run(chosen.into, chosen.width))


if __name__ == "__main__":
    main(sys.argv[1:])
