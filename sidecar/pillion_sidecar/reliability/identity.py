"""The identity of an indication, packed: what the duplicate memory compares.

The key is (source, IndicationIdentifier); without a source or an identifier it is the place in a
message group, if there is one (S1: GroupId and SequenceNumber), else the incoming (SequenceContext,
SequenceNumber); without that there is no identity, and nothing is a duplicate.
"""

from hashlib import blake2b
from typing import overload

#: Bytes of a digest. At 128 bits a million remembered identities meet a false duplicate once in
#: 10^32 indications.
DIGEST_SIZE = 16


@overload
def scoped(namespace: str | None, name: str) -> str: ...


@overload
def scoped(namespace: str | None, name: None) -> None: ...


def scoped(namespace: str | None, name: str | None) -> str | None:
    """Return the name under which a gateway knows what a publisher of a namespace calls ``name``:
    its source, its message group, or its own ID. None stays None.

    ``namespace`` is that of the publisher's token; None where nobody is asked for one: then the
    name is its own. A namespace is a DNS label (RFC 1123) without a slash, so no two of them have
    a scoped name in common.
    """
    if namespace is None or name is None:
        return name
    return f"{namespace}/{name}"


def unscoped(namespace: str | None, name: str | None) -> str | None:
    """Return what the publisher of a namespace itself calls what :func:`scoped` has named."""
    if namespace is None or name is None:
        return name
    return name.removeprefix(f"{namespace}/")


def identity_digest(source: str | None, identifier: str | None) -> bytes | None:
    """Return the digest of (source, IndicationIdentifier), or None where one of them is missing."""
    if source is None or identifier is None:
        return None
    # The length keeps ("a", "bc") apart from ("ab", "c").
    key = f"i{len(source)}:{source}{identifier}"
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


def sequence_digest(source: str | None, context: str, number: int) -> bytes:
    """Return the digest of an incoming sequence identifier."""
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
    """Return the digest under which a gateway knows what a sidecar of ``namespace`` relays for one
    subscription, given by its uid; the same, whichever sidecar it comes from.

    Without a source or an identifier it is its place in the sidecar's queue, ``context`` and
    ``number``.
    """
    if source is None or identifier is None:
        key = f"c{len(namespace or '')}:{namespace or ''}{number}:{context}"
    else:
        origin = scoped(namespace, source)
        key = f"r{len(subscription)}:{subscription}{len(origin)}:{origin}{identifier}"
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()


def member_digest(source: str | None, group: str, generation: int, sequence: int) -> bytes:
    """Return the digest of a place in a message group.

    ``generation`` tells groups of one name apart, which came one after the other.
    """
    origin = source or ""
    key = f"g{generation}:{sequence}:{len(origin)}:{origin}{group}"
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=DIGEST_SIZE).digest()
