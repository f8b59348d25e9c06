"""The events that all peers deliver: the same 2 KB, and in each a mark that tells which it is."""

import re
from dataclasses import dataclass

#: What an event is delivered as takes some more: a CloudEvent is wrapped around it.
EVENT_BYTES = 2048
#: Numbers of events for hung listeners begin here.
HUNG = 1_000_000_000
_MARK = re.compile(rb"peer-(\d{12})-(\d{20})")
_PATTERN = (
    b'{"class":"CIM_AlertIndication","properties":{"IndicationIdentifier":"peer-%012d-%020d",'
    b'"AlertType":6,"PerceivedSeverity":5,"ProbableCause":52,"OwningEntity":"%b",'
    b'"AlertingManagedElement":"WX_Station.Name=\'EWR\'","SystemName":"ewr.example.com",'
    b'"Message":"Gust of 41.4 mph is above 40 mph","Description":"'
)


@dataclass(frozen=True, slots=True)
class Event:
    number: int
    #: The name of its listener.
    listener: str
    body: bytes


def event(number: int, listener: str, sent: int) -> Event:
    """``sent``: when its publisher was due to send it, in nanoseconds of the monotonic clock."""
    head = _PATTERN % (number, sent, listener.encode())
    return Event(number, listener, head + b"d" * (EVENT_BYTES - len(head) - 3) + b'"}}')


def read_mark(body: bytes) -> tuple[int, int] | None:
    """The number of the event that a body carries, and when it was sent."""
    found = _MARK.search(body)
    return (int(found[1]), int(found[2])) if found else None


def healthy_name(number: int) -> str:
    return f"healthy-{number:02d}"


def hung_name(number: int) -> str:
    return f"hung-{number:02d}"
