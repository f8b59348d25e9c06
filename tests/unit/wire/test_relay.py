"""What a deliverer writes of a relayed indication is what its gateway reads."""

import json

import msgspec

from pillion_sidecar.wire.relay import RELAYED_LINE, RelayedDiscard, RelayOrigin


def test_the_written_members_are_those_that_are_read() -> None:
    line = RELAYED_LINE % (
        b'{"class":"C"',
        b"",
        b'"uid"',
        1.25,
        b'"default#j"',
        7,
        b',"discard":{"destination":"siem","reason":"queue-full","detail":"","attempts":3,"at":2.5}',
    )
    origin = json.loads(line)["relay"]
    discard = RelayedDiscard("siem", "queue-full", "", 3, 2.5)
    assert msgspec.convert(origin, RelayOrigin) == RelayOrigin("uid", 1.25, "default#j", 7, discard)
