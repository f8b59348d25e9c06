"""The identity of an indication, packed for the duplicate memory. The key is (source,
IndicationIdentifier), else the place in a message group (S1: GroupId and SequenceNumber), else the
incoming (SequenceContext, SequenceNumber). Without any, nothing is a duplicate."""

from hashlib import blake2b
from typing import overload

#: Bytes. With 128 bits a million identities meet a false duplicate once in 10^32 indications.
DIGEST_SIZE = 16


@overload
def scoped(namespace: str | None, name: str) -> str: ...


@overload
def scoped(namespace: str | None, name: None) -> None: ...


def scoped(namespace: str | None, name: str | None) -> str | None:
    """Return a gateway's unique name for a publisher's source, group or ID; None stays None.

    ``namespace`` is from the publisher's token; without tokens None, and the name is unchanged.
    Namespaces are DNS labels without a slash, so scoped names of two never collide.
    """
    if namespace is None or name is None:
        return name
    return f"{namespace}/{name}"


def unscoped(namespace: str | None, name: str | None) -> str | None:
    """The inverse of :func:`scoped`."""
    if namespace is None or name is None:
        return name
    return name.removeprefix(f"{namespace}/")


def identity_digest(source: str | None, identifier: str | None) -> bytes | None:
    """Return the digest of (source, IndicationIdentifier), or None if one is missing."""
    if source is None or identifier is None:
        return None
    # The length keeps ("a", "bc") apart from ("ab", "c").
    key = f"i{len(source)}:{source}{identifier}"
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


def sequence_digest(source: str | None, context: str, number: int) -> bytes:
    origin = source or ""
    key = f"s{len(origin)}:{origin}{number}:{context}"
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


def relayed_digest(
    namespace: str | None,
    subscription: str,
    *,
    source: str | None,
    identifier: str | None,
    context: str,
    number: int,
) -> bytes:
    """Return the digest of a relayed indication for one subscription (its uid), equal for all
    sidecars of ``namespace``. Without source or identifier its place in the sidecar's queue
    (``context``, ``number``) counts."""
    if source is None or identifier is None:
        key = f"c{len(namespace or '')}:{namespace or ''}{number}:{context}"
    else:
        origin = scoped(namespace, source)
        key = f"r{len(subscription)}:{subscription}{len(origin)}:{origin}{identifier}"
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


def member_digest(source: str | None, group: str, generation: int, sequence: int) -> bytes:
    """Return the digest of a place in a group; ``generation`` distinguishes successive groups of
    one name."""
    origin = source or ""
    key = f"g{generation}:{sequence}:{len(origin)}:{origin}{group}"
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()
