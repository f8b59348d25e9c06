"""Chromium without a display, which photographs pages for the manual."""

import asyncio
import base64
import contextlib
import html
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from pillion_testbed.binaries import say
from pillion_testbed.rest import wait_until

#: Nothing that it looks up or reports by itself.
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
#: Milliseconds after which a page has fetched and drawn what it shows.
SETTLED = 3000
WITHIN = 60.0
#: What a terminal looks like.
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body{{margin:0;background:#1d2028}}
pre{{margin:0;padding:16px 20px;color:#d6dae4;font:13px/1.45 "DejaVu Sans Mono",monospace;
white-space:pre-wrap}} b{{color:#7fd1ae;font-weight:bold}}
</style><pre>{}</pre>"""
#: Pixels of a letter there, and of what is beside the text.
LETTER, BESIDE = 7.83, 44


class Page:
    """A tab of Chromium, spoken to by its DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol and return its result."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=WITHIN)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    async def evaluate(self, script: str) -> None:
        """Run a script in the page, until the promise that it returns is kept."""
        done = await self.call("Runtime.evaluate", expression=script, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]

    async def settle(self) -> None:
        """Give the page time to fetch and draw."""
        await self.evaluate(f"new Promise(done => setTimeout(done, {SETTLED}))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """Chromium. ``folder`` takes what it needs meanwhile."""

    program: str
    folder: Path

    def shoot(self, url: str, *, to: Path, width: int, script: str = "") -> None:
        """Photograph a page as high as it is, after a script has run in it."""
        to.write_bytes(asyncio.run(self._shot(url, width=width, script=script)))
        say(f"{to.name}: {to.stat().st_size // 1000} kB")

    def terminal(self, commands: Sequence[tuple[str, str]], *, to: Path, width: int = 200) -> None:
        """Photograph commands and what they printed, as a terminal of so many columns shows it."""
        text = "\n".join(f"$ {command}\n{printed}" for command, printed in commands).rstrip()
        lines = [
            f"<b>{html.escape(line)}</b>" if line.startswith("$ ") else html.escape(line)
            for line in text.splitlines()
        ]
        page = self.folder / "terminal.html"
        page.write_text(TERMINAL.format("\n".join(lines)))
        columns = min(width, max(map(len, text.splitlines())))
        self.shoot(page.as_uri(), to=to, width=round(columns * LETTER) + BESIDE)

    async def _shot(self, url: str, *, width: int, script: str) -> bytes:
        async with self._opened(width) as page:
            await page.call("Page.navigate", url=url)
            await page.settle()
            if script:
                await page.evaluate(script)
                await page.settle()
            size = (await page.call("Page.getLayoutMetrics"))["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": width, "height": size["height"], "scale": 1}
            shot = await page.call(
                "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
            )
            return base64.b64decode(shot["data"])

    @contextlib.asynccontextmanager
    async def _opened(self, width: int) -> AsyncIterator[Page]:
        with self._running(width) as port:
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                    (tab,) = [one for one in await answer.json() if one["type"] == "page"]
                async with session.ws_connect(
                    tab["webSocketDebuggerUrl"], max_msg_size=0
                ) as socket:
                    yield Page(socket)

    @contextlib.contextmanager
    def _running(self, width: int) -> Iterator[int]:
        """Chromium's port."""
        with tempfile.TemporaryDirectory(dir=self.folder, ignore_cleanup_errors=True) as profile:
            place = (f"--user-data-dir={profile}", f"--window-size={width},400", "about:blank")
            with subprocess.Popen(
                (self.program, *OPTIONS, *place),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process:
                try:
                    told = Path(profile) / "DevToolsActivePort"
                    wait_until(
                        lambda: told.exists() and "\n" in told.read_text(),
                        within=WITHIN,
                        what="Chromium",
                    )
                    yield int(told.read_text().split("\n")[0])
                finally:
                    process.terminate()


def find_camera(folder: Path) -> Camera:
    """The machine's Chromium; SystemExit where there is none."""
    program = shutil.which("chromium") or shutil.which("chrome")
    if program is None:
        raise SystemExit("no chromium on the PATH: install the Debian package chromium")
    return Camera(program=program, folder=folder)
