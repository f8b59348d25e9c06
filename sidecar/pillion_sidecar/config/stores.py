"""The stores of a service, with what their Secrets hold."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.credentials import SecretReader
from pillion_sidecar.config.parsing import Resource, Resources
from pillion_sidecar.config.problems import ADDRESS_NOT_PERMITTED
from pillion_sidecar.config.schema.stores import StoreMember, StoresPolicy, StreamMember
from pillion_sidecar.config.validation import Path
from pillion_sidecar.fields import build

_GROUPS: Path = ("spec", "stores", "groups")


def build_stores(
    service: Resource, resources: Resources, *, addresses: AddressPolicy
) -> StoresPolicy:
    """Return the stores, which are sound. Problems are added to ``resources``."""
    policy = build(StoresPolicy, service.spec["stores"])
    _check_names(policy, service, resources)
    reading = _Reading(service, resources, addresses)
    groups = tuple(
        replace(
            group,
            members=_with_secrets(group.members, (*_GROUPS, at, "members"), reading),
            backups=_with_secrets(group.backups, (*_GROUPS, at, "backups"), reading),
        )
        for at, group in enumerate(policy.groups)
    )
    return replace(policy, groups=groups)


@dataclass(frozen=True, slots=True)
class _Reading:
    service: Resource
    resources: Resources
    addresses: AddressPolicy

    def read(self, stream: StreamMember, path: Path) -> StreamMember:
        for at, url in enumerate(stream.servers):
            refusal = self.addresses.check_url(url)
            if refusal is not None:
                self.resources.complain(
                    self.service.place,
                    (*path, "servers", at),
                    url,
                    refusal,
                    "Write the address of a remote server, or allow this kind of address when you "
                    "start the deliverer.",
                    reason=ADDRESS_NOT_PERMITTED,
                )
        reader = SecretReader(self.resources, self.service, path)
        return replace(stream, tls=reader.tls(), credentials=reader.credentials())


def _with_secrets(
    members: tuple[StoreMember, ...], path: Path, reading: _Reading
) -> tuple[StoreMember, ...]:
    return tuple(
        member
        if member.stream is None
        else replace(member, stream=reading.read(member.stream, (*path, at, "nats")))
        for at, member in enumerate(members)
    )


def _check_names(policy: StoresPolicy, service: Resource, resources: Resources) -> None:
    twice = sorted(name for name, count in Counter(_names(policy)).items() if count > 1)
    if twice:
        resources.complain(
            service.place,
            _GROUPS,
            ", ".join(twice),
            "names a store twice, and each has one copy",
            "Name each store once, as a member or as a backup of one group.",
        )


def _names(policy: StoresPolicy) -> Iterator[str]:
    for group in policy.groups:
        yield from (member.store for member in group.members + group.backups)
