"""The last word of a container: what the kubelet keeps of it when it is gone."""

import contextlib
import json
from pathlib import Path

#: Where Kubernetes looks for it (a container's terminationMessagePath); elsewhere it is not there.
TERMINATION_LOG = Path("/dev/termination-log")


def leave_word(left: int | None, *, path: Path = TERMINATION_LOG) -> None:
    """Say how many indications a deliverer leaves behind, where anybody looks for it.

    The operator reads it: of a deliverer whose volume goes with its pod nothing else tells it.
    ``left`` is None where that is not known, as where it never got as far as to deliver.
    """
    if left is None or not path.exists():
        return
    # A courtesy: the log says it too.
    with contextlib.suppress(OSError):
        path.write_text(json.dumps({"left": left}))
