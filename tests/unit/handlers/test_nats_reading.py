"""What a NATS server says, read in any pieces and from anybody."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.handlers.broker.wire import BrokerError
from pillion_sidecar.handlers.nats.reading import Reader, Said

SAID = (
    b'INFO {"a": 1}\r\nmsg in.1 1 5\r\nab\r\nc\r\nPING\r\n'
    b"HMSG in.2 1 reply 16 18\r\nNATS/1.0 503\r\n\r\n{}\r\n+OK\r\n-ERR 'no'\r\n"
)
MEANT = [
    Said(b"INFO", b'{"a": 1}'),
    Said(b"MSG", b"in.1 1 5", b"", b"ab\r\nc"),
    Said(b"PING", b""),
    Said(b"HMSG", b"in.2 1 reply 16 18", b"NATS/1.0 503\r\n\r\n", b"{}"),
    Said(b"+OK", b""),
    Said(b"-ERR", b"'no'"),
]


@given(st.integers(1, len(SAID)))
def test_it_is_read_in_any_pieces(piece: int) -> None:
    reader, found = Reader(), list[Said]()
    for at in range(0, len(SAID), piece):
        found += reader.feed(SAID[at : at + piece])
    assert found == MEANT
    assert not reader.has_more


@given(st.binary(max_size=200), st.sampled_from([b"", b"MSG ", b"HMSG a 1 ", b"MSG a 1 3\r\n"]))
def test_anything_else_is_an_error_of_the_server(data: bytes, begin: bytes) -> None:
    with suppress(BrokerError):
        list(Reader().feed(begin + data))
