"""Headers whose tokens were found good: known by their digests until these expire, so that the next
request with the same one is let in without a look at its signature."""

from collections import OrderedDict
from hashlib import blake2b

from pillion_sidecar.door.tokens import Verified

#: Tokens that are remembered. A pod has one, and gets another each hour.
MAXIMUM_TOKENS = 10_000


class Remembered:
    """Bounded: the token that was shown least recently gives way."""

    def __init__(self, *, maximum: int = MAXIMUM_TOKENS) -> None:
        self._maximum = maximum
        # By digest: whoever reads this memory finds no token in it.
        self._tokens: OrderedDict[bytes, Verified] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tokens)

    def find(self, header: str, *, now: float) -> Verified | None:
        """Return what is known of a header whose token is still good; ``now`` in seconds since the
        epoch."""
        digest = _digest(header)
        found = self._tokens.get(digest)
        if found is None:
            return None
        if now > found.until:
            del self._tokens[digest]
            return None
        self._tokens.move_to_end(digest)
        return found

    def keep(self, header: str, verified: Verified) -> None:
        """Remember a header whose token is good."""
        self._tokens[_digest(header)] = verified
        if len(self._tokens) > self._maximum:
            self._tokens.popitem(last=False)

    def clear(self) -> None:
        """Forget all: the keys have changed."""
        self._tokens.clear()


def _digest(header: str) -> bytes:
    return blake2b(header.encode("utf-8", "surrogatepass"), digest_size=32).digest()
