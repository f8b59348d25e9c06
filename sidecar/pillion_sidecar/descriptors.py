"""File descriptors: the limit of the process, and how the deliverer divides it.

Each part has a share of its own, so that connections, which strangers open, never take those that
the journal, the resource files and the log need.
"""

import os
import resource
from dataclasses import dataclass

#: What the soft limit is raised to, where the hard one allows it: 10,000 destinations with some
#: connections each, and what the other shares take.
MOST_DESCRIPTORS = 65_536
#: Kept back for the journal's segments, resource files, the log, name resolution and libraries.
KEPT_BACK = 128
#: Connections of the intake listener at most.
INTAKE_CONNECTIONS = 1000
#: Connections of the telemetry listener, and of the administration listener, at most.
SMALL_CONNECTIONS = 64
#: The fewest connections that a listener has.
FEWEST_CONNECTIONS = 8
#: The fewest connections to listeners, where there are three times as many descriptors.
FEWEST_OUTGOING = 16
#: The fewest of all.
LEAST_OUTGOING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptorShares:
    """How many descriptors each part may use."""

    #: What is divided: the limit, less those that were open.
    available: int
    intake: int
    telemetry: int
    administration: int
    #: Connections to listeners, gateways and publishers that are called back.
    outgoing: int

    @classmethod
    def of(cls, available: int) -> "DescriptorShares":
        """Divide ``available`` descriptors. Few leave each part its fewest, and no more."""
        small = _between(FEWEST_CONNECTIONS, available // 16, SMALL_CONNECTIONS)
        intake = _between(FEWEST_CONNECTIONS, available // 4, INTAKE_CONNECTIONS)
        # The journal and the listeners need what few descriptors there are, too.
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
    def of_process(cls) -> "DescriptorShares":
        """Divide what the soft limit leaves beside the descriptors that are open now."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MOST_DESCRIPTORS)
        return cls.of(max(0, limit - _open_now()))


def raise_limit() -> None:
    """Raise the soft limit of the process towards the hard one.

    For a process of our own: an embedded deliverer leaves its host's limit alone.
    """
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
