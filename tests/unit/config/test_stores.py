"""What a configuration says of a journal's stores, and what their Secrets hold (S3.11)."""

from pathlib import Path
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.schema.stores import StoreMember, StreamMember, SyncInterval
from support.resources import JSON, secret, service, write
from support.store_cases import stream

BASIC = {"basic": {"secretRef": {"name": "nats"}}}
LOGIN = {"username": "pillion", "password": "open sesame"}
AT = "spec.stores.groups[0].members[0].nats"


def of(*members: JSON, backups: tuple[JSON, ...] = ()) -> JSON:
    group = {"name": "all", "members": [*members], "backups": [*backups]}
    return service(stores={"groups": [group]})


def members(folder: Path, *documents: JSON) -> list[StoreMember]:
    stores = load_folder(write(folder, *documents)).service.stores
    assert stores is not None
    return [one for group in stores.groups for one in group.members + group.backups]


def problem(folder: Path, *documents: JSON, **given: Any) -> Problem:
    with pytest.raises(ConfigurationError) as refused:
        load_folder(write(folder, *documents), **given)
    (told,) = refused.value.problems
    return told


def test_gateways_and_streams_are_stores_of_one_group(tmp_path: Path) -> None:
    found = members(
        tmp_path, of({"gatewayRef": {"name": "shared"}}, stream()), secret("nats", LOGIN)
    )
    assert [one.store for one in found] == ["shared", "zone-a"]
    assert found[1].stream == StreamMember(
        name="zone-a",
        servers=("tls://nats.example.com",),
        stream="journals",
        subject="pillion.journals",
        sync_interval=SyncInterval.ALWAYS,
    )


def test_a_streams_credentials_and_authorities_are_those_of_its_secrets(tmp_path: Path) -> None:
    pem = trustme.CA().cert_pem.bytes()
    (found,) = members(
        tmp_path,
        of(stream(credentials=BASIC, tls={"caSecretRef": {"name": "ca"}})),
        secret("nats", LOGIN),
        secret("ca", {"ca.crt": pem.decode()}),
    )
    assert found.stream is not None
    assert found.stream.credentials == Credentials(username="pillion", password="open sesame")
    assert found.stream.tls.ca_certificates == pem
    assert found.stream.tls.verify
    assert "open sesame" not in repr(found)


def test_a_backup_has_credentials_as_a_member_has(tmp_path: Path) -> None:
    bearer = {"bearer": {"secretRef": {"name": "nats"}}}
    *_, found = members(
        tmp_path,
        of({"gatewayRef": {"name": "shared"}}, backups=(stream(credentials=bearer),)),
        secret("nats", {"token": "t"}),
    )
    assert found.stream is not None
    assert found.stream.credentials == Credentials(bearer_token="t")


@pytest.mark.parametrize(
    ("secrets", "says"),
    [
        ((), "no such Secret"),
        ((secret("nats", LOGIN, labelled=False),), "this Secret may not be used by stores"),
        ((secret("nats", {"username": "pillion"}),), "has no key password"),
    ],
)
def test_what_is_wrong_with_a_streams_secret_is_said_by_field(
    tmp_path: Path, secrets: tuple[JSON, ...], says: str
) -> None:
    told = problem(tmp_path, of(stream(credentials=BASIC)), *secrets)
    assert told.field == f"{AT}.credentials.basic.secretRef.name"
    assert told.message == says
    assert told.resource == "IndicationService/default"


def test_authorities_that_are_none_are_said_by_field(tmp_path: Path) -> None:
    documents = of(stream(tls={"caSecretRef": {"name": "ca"}})), secret("ca", {"ca.crt": "no"})
    told = problem(tmp_path, *documents)
    assert told.field == f"{AT}.tls.caSecretRef.name"
    assert told.message == "its key ca.crt holds no certificates in PEM"


def test_a_server_at_a_forbidden_address_is_refused(tmp_path: Path) -> None:
    servers = ["tls://nats.example.com", "nats://127.0.0.1:4222"]
    told = problem(tmp_path, of(stream(servers=servers)), addresses=AddressPolicy())
    assert told.field == f"{AT}.servers[1]"
    assert told.reason == "AddressNotPermitted"


@pytest.mark.parametrize("backups", [False, True])
def test_two_stores_of_one_name_are_refused(tmp_path: Path, backups: bool) -> None:
    twice = {"gatewayRef": {"name": "zone-a"}}
    made = of(stream(), backups=(twice,)) if backups else of(stream(), twice)
    told = problem(tmp_path, made)
    assert told.field == "spec.stores.groups"
    assert told.message == "names a store twice, and each has one copy"
    assert told.value == "'zone-a'"


def test_what_its_servers_do_before_they_acknowledge_must_be_declared(tmp_path: Path) -> None:
    told = problem(tmp_path, of(stream(syncInterval=None)))
    assert told.field == f"{AT}.syncInterval"
    assert "sync_interval: always" in told.remedy
