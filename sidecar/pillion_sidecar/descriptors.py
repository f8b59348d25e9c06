"""File descriptors: the limit of the process and its shares.

Connections, which strangers can open, never take the descriptors of the journal, resource files and
log.
"""

import os
import resource
from dataclasses import dataclass

#: Target of the soft limit: 10,000 destinations with some connections each, and the other shares.
MOST_DESCRIPTORS = 65_536
#: Reserved for the journal's segments, resource files, the log, name resolution and libraries.
KEPT_BACK = 128
#: Maximum connections of the intake listener.
INTAKE_CONNECTIONS = 1000
#: Maximum connections of the telemetry and administration listeners, each.
SMALL_CONNECTIONS = 64
#: Minimum connections of a listener.
FEWEST_CONNECTIONS = 8
#: Minimum outgoing connections, if there are three times as many descriptors.
FEWEST_OUTGOING = 16
#: Absolute minimum of outgoing connections.
LEAST_OUTGOING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorShares:
    #: The limit, less the descriptors open at the start.
    available: int
    intake: int
    telemetry: int
    administration: int
    #: Connections to listeners, gateways and publishers' callbacks.
    outgoing: int

    @classmethod
    def of(cls, available: int) -> "DescriptorShares":
        """Divide ``available`` descriptors; if they are few, each part gets its minimum."""
        small = _between(FEWEST_CONNECTIONS, available // 16, SMALL_CONNECTIONS)
        intake = _between(FEWEST_CONNECTIONS, available // 4, INTAKE_CONNECTIONS)
        # The journal and the listeners need some of the few descriptors, too.
        fewest = _between(LEAST_OUTGOING, available // 3, FEWEST_OUTGOING)
        outgoing = max(fewest, available - KEPT_BACK - intake - 2 * small)
        return cls(
            available=available,
            intake=intake,
            telemetry=small,
            administration=small,
            outgoing=outgoing,
        )

    @classmethod
    def of_process(cls, *, kept: int = 0) -> "DescriptorShares":
        """``kept``: descriptors that are kept for plug-ins."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MOST_DESCRIPTORS)
        return cls.of(max(0, limit - _open_now() - kept))


def raise_limit() -> None:
    """Raise the soft limit towards the hard one; not in an embedded deliverer, whose host owns the
    limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _open_now() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _between(least: int, number: int, most: int) -> int:
    return max(least, min(number, most))
