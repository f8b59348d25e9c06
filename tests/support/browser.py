"""A real browser: Debian's Chromium, driven by Selenium."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from support.resources import JSON

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
#: Seconds for which a page has time to do what a test waits for.
PATIENCE = 40
#: Elements that the Tab key reaches on the way to one.
MOST_TABS = 60
_UNTIL = """
const done = arguments[arguments.length - 1], holds = new Function(`return ${arguments[0]}`);
(function look() { const found = holds(); found ? done(found) : setTimeout(look, 20); })();
"""

#: Returns the texts whose contrast with what is behind them is below 4.5.
CONTRAST = """
const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
  .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
  .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
const parts = (color) => color.match(/[\\d.]+/g).map(Number);
const behind = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const color = parts(getComputedStyle(one).backgroundColor);
    if (color.length < 4 || color[3] > 0) return color;
  }
};
return [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
  && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).flatMap((one) => {
    const pair = [parts(getComputedStyle(one).color), behind(one)].map(light).sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    return contrast < 4.5 ? [`${one.tagName} ${one.textContent} ${contrast}`] : [];
  });
"""


class Browser:
    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        # The same address with another fragment would not be loaded again.
        self.driver.get("about:blank")
        self.driver.get(url)

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def until(self, condition: str) -> Any:
        """Wait until an expression of JavaScript is true; return its value."""
        return self.driver.execute_async_script(_UNTIL, condition)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        found: str = self.run("return document.querySelector(arguments[0]).textContent", selector)
        return found

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
        found: list[str] = self.run(script, selector)
        return found

    @property
    def focused(self) -> WebElement:
        return self.driver.switch_to.active_element

    def press(self, *keys: str) -> None:
        for key in keys:
            self.focused.send_keys(key)

    def tab_to(self, selector: str) -> None:
        """Press Tab until an element has the focus."""
        for _ in range(MOST_TABS):
            if self.run("return document.activeElement.matches(arguments[0])", selector):
                return
            self.press(Keys.TAB)
        pytest.fail(f"the Tab key does not lead to {selector}")

    def complaints(self) -> list[str]:
        """What the browser has complained of since the last time, such as a blocked script."""
        entries: list[JSON] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]


@contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser; skip the test where there is none."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("Chromium is missing: apt-get install -y chromium chromium-driver")
    options = Options()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        driver.set_script_timeout(PATIENCE)
        yield Browser(driver)
    finally:
        driver.quit()
