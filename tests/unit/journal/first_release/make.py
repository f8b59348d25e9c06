"""Makes the journal beside this file, with the code of the first release (commit d029342):

    git worktree add --detach FIRST d029342
    cd FIRST && PYTHONPATH=.:tests:cim:sidecar python NEW/tests/unit/journal/first_release/make.py

The first segments were removed: thirty indications were accepted for two destinations, some were
settled, one is held, and the deliverer was stopped.
"""

import shutil
from pathlib import Path

from pillion_sidecar.journal.files import SystemFiles
from pillion_sidecar.journal.ports import QueueState
from pillion_sidecar.testing import FakeTime
from support.journal_owner import LiveJournal

FOLDER = Path(__file__).parent / "journal"
#: Listener, context and numbers of the first destination.
STATE = QueueState(
    destination=0,
    listener="CIM-XML http://listener.example/",
    sends_identifiers=True,
    epoch=3,
    base=0,
    next_number=20,
)


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    live = LiveJournal(
        SystemFiles(FOLDER), time=FakeTime(epoch=1_750_000_000.0), segment_bytes=4096
    )
    siem = live.journal.destination(uid="siem-uid", name="siem")
    live.journal.destination(uid="pager-uid", name="pager")
    for count in range(8):
        live.journal.subscription(uid=f"s{count}", name=f"s{count}", filter_name="alerts")
    live.owner.states[siem] = STATE
    live.journal.note(STATE)
    taken = []
    for count in range(30):
        digest = bytes([count]) * 16
        taken.append(live.accept(0, 1, body=b'{"n":%d}' % count + b" " * 700, digest=digest))
        live.run()
        if count >= 3:
            live.settle(taken[count - 3], 0)
            if count < 15:
                live.settle(taken[count - 3], 1)
        live.time.advance(1.0)
        live.run()
    live.hold(1, body=b'{"held":true}')
    live.run()
    live.journal.close()
    print(sorted(live.pending), [path.name for path in sorted(FOLDER.iterdir())])


if __name__ == "__main__":
    main()
