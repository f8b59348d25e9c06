"""What is read from the API server's audit log."""

import json
from pathlib import Path
from typing import Any

import pytest

from pillion_testbed.audit import requests, writes


def event(verb: str, resource: str, **other: Any) -> dict[str, Any]:
    return {
        "verb": verb,
        "user": {"username": other.get("user", "operator")},
        "requestURI": f"/api/v1/namespaces/a/{resource}{other.get('query', '')}",
        "objectRef": {
            "resource": resource,
            "namespace": other.get("namespace", "a"),
            "name": other.get("name", "n"),
            "subresource": other.get("subresource", ""),
        },
        "responseStatus": {"code": other.get("code", 200)},
    }


def log_of(folder: Path, *events: dict[str, Any], half: str = "") -> Path:
    log = folder / "audit.log"
    log.write_text("".join(json.dumps(one) + "\n" for one in events) + half)
    return log


def test_writes_are_those_of_one_user(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        event("create", "secrets", name="one", code=201),
        event("patch", "secrets", user="somebody"),
        event("patch", "indicationservices", name="two", subresource="status"),
    )
    assert [(one.verb, one.resource, one.name, one.status) for one in writes(log, "operator")] == [
        ("create", "secrets", "one", 201),
        ("patch", "indicationservices/status", "two", 200),
    ]


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_reads_are_no_writes(tmp_path: Path, verb: str) -> None:
    log = log_of(tmp_path, event(verb, "secrets"))
    assert list(writes(log, "operator")) == []
    assert [one.verb for one in requests(log)] == [verb]


@pytest.mark.parametrize("resource", ["leases", "events"])
def test_leases_and_events_count_only_when_asked_for(tmp_path: Path, resource: str) -> None:
    log = log_of(tmp_path, event("patch", resource))
    assert list(writes(log, "operator")) == []
    assert len(list(writes(log, "operator", without=frozenset()))) == 1


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path, event("patch", "secrets", query="?dryRun=All"))
    assert list(writes(log, "operator")) == []
    assert len(list(writes(log, "operator", dry_run=True))) == 1


def test_one_namespace_may_be_asked_for(tmp_path: Path) -> None:
    log = log_of(tmp_path, event("patch", "a"), event("patch", "b", namespace="b"))
    assert [one.resource for one in writes(log, "operator", namespace="b")] == ["b"]


def test_a_refused_write_is_one(tmp_path: Path) -> None:
    log = log_of(tmp_path, event("delete", "secrets", code=403))
    assert [one.status for one in writes(log, "operator")] == [403]


def test_whoever_is_impersonated_is_the_user(tmp_path: Path) -> None:
    acted = {**event("patch", "secrets"), "impersonatedUser": {"username": "alice"}}
    assert len(list(writes(log_of(tmp_path, acted), "alice"))) == 1


def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    log = log_of(tmp_path, event("patch", "secrets"), half='{"verb": "pa')
    assert len(list(requests(log))) == 1


def test_no_log_yet_is_no_request(tmp_path: Path) -> None:
    assert list(requests(tmp_path / "audit.log")) == []
