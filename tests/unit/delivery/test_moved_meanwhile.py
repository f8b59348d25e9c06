"""A destination that moves while indications for it wait for their commit: the new context begins
with them (D.2). The kill points found a SequenceNumber of 2**63 - 1."""

from random import Random

import pytest

from pillion_sidecar.testing import FakeTime
from support.core import EAST, SUCCESS, Core
from support.crashing_files import RecordingFiles


@pytest.mark.parametrize("delivered_before", [0, 3])
def test_what_is_not_on_disk_yet_begins_the_new_context(delivered_before: int) -> None:
    core = Core(RecordingFiles(), draw=Random(0), time=FakeTime())
    for number in range(delivered_before):
        core.publish(f"before{number}", [EAST], group=None, body=b"{}")
        core.disks()
        core.answer(core.flying[0], SUCCESS)
    core.events.clear()
    core.publish("a", [EAST], group=None, body=b"{}")
    core.publish("b", [EAST], group=None, body=b"{}")
    core.move()
    core.deliver_all()
    arrived = [one.given for one in core.events if one.what == "arrive"]
    assert [(identifier, number) for _, identifier, _, number in arrived] == [("a", 0), ("b", 1)]
    assert len({context for _, _, context, _ in arrived}) == 1
