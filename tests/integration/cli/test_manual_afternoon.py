"""The page of the afternoon shows what the commands, and the alert, say on such an afternoon.

With ``PILLION_REWRITE_MANUAL=1`` the page is given what was printed.
"""

import os
from pathlib import Path

import pytest

from support.afternoon import Afternoon, afternoon, as_text
from support.manual import DOCS, REWRITE, Shown, blocks, keep, lines, shown, shown_in

pytestmark = pytest.mark.timeout(300)

PAGE = DOCS / "afternoon.md"
#: What happens before each of its blocks of commands.
ACTS = (
    Afternoon.breaks,
    Afternoon.passes,
    Afternoon.is_mended,
    Afternoon.catches_up,
    Afternoon.ends,
)


def said(step: Shown) -> tuple[str, list[str]]:
    """What a step says, in any order: a redrive is noted before or after what it delivers."""
    return step.command, sorted(step.prints.splitlines())


@pytest.mark.slow
async def test_its_commands_print_what_the_page_says_and_all_arrives(tmp_path: Path) -> None:
    printed = []
    async with afternoon(tmp_path) as story:
        for act, block in zip(ACTS, blocks(PAGE, "console"), strict=True):
            await act(story)
            printed += [
                Shown(step.command, lines(await story.pillion(step.command)))
                for step in shown_in(block)
            ]
        arrived = [one for one in story.siem.arrived if not one.startswith("pillion-test-")]
    keep(PAGE, printed)
    assert [said(one) for one in printed] == [said(one) for one in shown(PAGE)]
    # Each once: what waited, and then what was discarded, each in order.
    numbers = [int(one.removeprefix("c-")) for one in arrived]
    assert sorted(numbers) == list(range(1, story.published + 1))
    assert [one for one, last in zip(numbers[1:], numbers, strict=False) if one < last] == [31]


@pytest.mark.cluster
async def test_the_one_alert_says_what_the_page_says(tmp_path: Path) -> None:
    async with afternoon(tmp_path) as story:
        await story.breaks()
        (alert,) = await story.alerts()
    text = as_text(alert)
    (shown_text,) = blocks(PAGE, "text")
    if os.environ.get(REWRITE):
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page.replace(f"```text\n{shown_text}```", f"```text\n{text}```"), "utf-8")
        shown_text = text
    assert text == shown_text
