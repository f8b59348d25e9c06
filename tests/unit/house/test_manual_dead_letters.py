"""The table of reasons in the manual is that of the code."""

import re

from pillion_sidecar.delivery.dead_letters import MAKES_DEAD_LETTER
from pillion_sidecar.indication import DiscardReason
from support.manual import DOCS

ROW = re.compile(r"^\| `([a-z-]+)` \| (yes|no|with)\b", re.MULTILINE)


def test_the_manual_says_which_discards_become_dead_letters() -> None:
    text = (DOCS / "delivery.md").read_text(encoding="utf-8")
    section = text.split("\n## Dead letters\n")[1].split("\n## ")[0]
    told = {DiscardReason(reason): word != "no" for reason, word in ROW.findall(section)}
    assert told == MAKES_DEAD_LETTER
