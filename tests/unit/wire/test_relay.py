"""What a deliverer writes of a relayed indication is what its gateway reads."""

import json

import msgspec

from pillion_sidecar.wire.relay import RELAYED_LINE, RelayOrigin


def test_the_written_members_are_those_that_are_read() -> None:
    line = RELAYED_LINE % (
        b'{"class":"C"',
        b"",
        b'"uid"',
        1.25,
        b'"default#j"',
        7,
    )
    origin = json.loads(line)["relay"]
    assert msgspec.convert(origin, RelayOrigin) == RelayOrigin("uid", 1.25, "default#j", 7)
