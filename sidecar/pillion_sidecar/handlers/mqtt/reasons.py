"""Reason codes of MQTT 5 (2.4), and what they mean for a delivery."""

from pillion_sidecar.delivery.handler import HoldCause

#: From here on, a reason is a failure.
FAILURE = 0x80
NO_SUBSCRIBERS = 0x10
#: Those that are about one message.
INDICATION_REFUSED = frozenset((0x95, 0x99))
_NAMES = {
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific error",
    0x84: "unsupported protocol version",
    0x85: "client identifier not valid",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8C: "bad authentication method",
    0x8D: "keep alive timeout",
    0x8E: "session taken over",
    0x90: "topic name invalid",
    0x91: "packet identifier in use",
    0x92: "packet identifier not found",
    0x93: "receive maximum exceeded",
    0x95: "packet too large",
    0x96: "message rate too high",
    0x97: "quota exceeded",
    0x98: "administrative action",
    0x99: "payload format invalid",
    0x9A: "retain not supported",
    0x9B: "QoS not supported",
    0x9C: "use another server",
    0x9D: "server moved",
    0x9F: "connection rate exceeded",
}
#: What the destination is at fault for.
HOLDS = {
    **dict.fromkeys((0x86, 0x87, 0x8A, 0x8C), HoldCause.REFUSED),
    **dict.fromkeys((0x84, 0x90, 0x9A, 0x9B), HoldCause.DESTINATION),
}


def reason_text(reason: int) -> str:
    return f"{_NAMES.get(reason, 'unspecified error')} (0x{reason:02x})"
