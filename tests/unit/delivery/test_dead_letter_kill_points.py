"""Kill points of dead letters: a run is cut at each operation of its journal's folder, by kills and
by power cuts, and opened again. What was on disk is in its own queue or among the dead letters, in
order."""

from random import Random
from typing import Any

import pytest

from pillion_sidecar.config.schema.destination import RemovalPolicy, RetryPolicy
from support.crashing_files import Disk, RecordingFiles
from support.delivery import FATAL_ERROR, destination, subscription
from support.on_disk import OnDisk

POWER_CUTS = 3
COUNT = 10
SHUT = destination("grave", suspended=True)


def ops(**changes: Any) -> Any:
    return destination(
        "ops",
        dead_letter="grave",
        removal_policy=RemovalPolicy.DEAD_LETTER,
        retry=RetryPolicy(attempts=0),
        **changes,
    )


class Run:
    """A deliverer, and after how many operations each indication was on disk."""

    def __init__(self, **changes: Any) -> None:
        self.files = RecordingFiles()
        self.deliverer = OnDisk(self.files)
        self.ops = ops(**changes)
        self.deliverer.apply([self.ops, SHUT], [subscription("ops", "ops")])
        self.deliverer.handlers["ops"].answer = FATAL_ERROR
        self.safe: dict[str, int] = {}

    def publish(self, draw: Random) -> None:
        for number in range(COUNT):
            name = str(number)
            body = b"{" + b" " * draw.randrange(10, 900) + b"}"
            assert self.deliverer.publish(name, body=body) is None
            self.deliverer.service.barrier(lambda name=name: self._is_safe(name))
            if draw.random() < 0.6:
                self.deliverer.run()
            if draw.random() < 0.3:
                self.deliverer.rest()

    def _is_safe(self, name: str) -> None:
        self.safe[name] = len(self.files.operations)

    def images(self, draw: Random) -> Any:
        disk = Disk({})
        for index, operation in enumerate([*self.files.operations, None]):
            yield index, disk.after_kill(operation, draw), 1
            for _ in range(POWER_CUTS):
                yield index, disk.after_power_cut(operation, draw), 2
            if operation is not None:
                disk.tell(operation)


def left(image: dict[str, bytes], boots: int) -> list[str]:
    """What the dead letters get when ops is gone after the crash."""
    again = OnDisk(RecordingFiles(image, boots=boots))
    again.apply([destination("grave")], [])
    again.rest()
    assert again.service.pending == 0
    return [str(one) for one in again.handlers["grave"].identifiers]


@pytest.mark.parametrize("is_removed", [False, True])
def test_nothing_is_lost_between_two_queues_wherever_it_is_killed(is_removed: bool) -> None:
    draw = Random(COUNT)
    run = Run(suspended=is_removed)
    run.publish(draw)
    run.deliverer.rest()
    if is_removed:
        run.deliverer.apply([SHUT], [])
    run.deliverer.rest()
    assert run.deliverer.queue("grave").depth == COUNT
    points = 0
    for index, image, boots in run.images(draw):
        points += 1
        found = left(image, boots)
        where = f"operation {index}, point {points}"
        lost = {name for name, after in run.safe.items() if after <= index} - set(found)
        assert not lost, where
        firsts = list(dict.fromkeys(found))
        assert firsts == sorted(firsts, key=int), where
    assert points > 40
