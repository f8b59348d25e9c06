"""Faults of a destination: they hold its queue instead of refusing the whole configuration. Pure.

See decision 22. A fault is what is wrong with the URL, the protocol, the TLS settings or the
credentials of one destination, or with a Secret that these name (S0.8).
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pillion_sidecar.config.addresses import host_of, parse_host
from pillion_sidecar.config.parsing import Resource, Resources
from pillion_sidecar.config.problems import ADDRESS_NOT_PERMITTED, Problem
from pillion_sidecar.config.resources import DestinationFault, HoldCause

#: The fields of a destination's ``spec`` without which nothing can be sent.
_CAUSES = {
    "destination": HoldCause.DESTINATION,
    "destinationFrom": HoldCause.DESTINATION,
    "protocol": HoldCause.PROTOCOL,
    "tls": HoldCause.CERTIFICATES,
    "credentials": HoldCause.CREDENTIALS,
}


def may_be_built(resource: Resource) -> bool:
    """Whether nothing is wrong with a ListenerDestination but what can hold it."""
    return resource.valid or (bool(resource.spec) and resource.flawed <= _CAUSES.keys())


def hold_faulty(
    resources: Resources, may_be_held: Collection[str] | None
) -> dict[str, DestinationFault]:
    """Turn the problems of destinations that may be held into warnings; return their faults.

    ``may_be_held``: names of destinations; None: all.
    """
    users = _users(resources)
    faults: dict[str, DestinationFault] = {}
    held: dict[Problem, None] = {}
    for problem in resources.problems:
        found = _faults(problem, resources, users)
        if found and (may_be_held is None or found.keys() <= set(may_be_held)):
            held[problem] = None
            for name, fault in found.items():
                # The first fault of a destination is shown; the warnings have all.
                faults.setdefault(name, fault)
    resources.problems[:] = [one for one in resources.problems if one not in held]
    resources.warnings.extend(f"{one} Its destination is held until then." for one in held)
    return faults


def _faults(
    problem: Problem, resources: Resources, users: Mapping[str, Mapping[str, HoldCause]]
) -> dict[str, DestinationFault]:
    """The faults that a problem is, by destination; none where it may concern others."""
    kind, _, name = problem.resource.partition("/")
    if kind == "ListenerDestination":
        resource = resources.by_kind[kind].get(name)
        cause = None if resource is None else _cause(problem, resource)
        if cause is None or resource is None or not may_be_built(resource):
            return {}
        return {name: DestinationFault(cause, _line(problem))}
    if kind == "Secret" and problem.reason == "Invalid":
        # Two Secrets of one name are nobody's in particular.
        line = f"Secret {name}: {_line(problem)}"
        return {user: DestinationFault(cause, line) for user, cause in users.get(name, {}).items()}
    return {}


def _cause(problem: Problem, resource: Resource) -> HoldCause | None:
    if problem.reason == ADDRESS_NOT_PERMITTED and _may_be_host(resource.spec.get("destination")):
        return HoldCause.ADDRESS
    root, _, rest = problem.field.partition(".")
    return _CAUSES.get(rest.partition(".")[0]) if root == "spec" else None


def _may_be_host(url: str | None) -> bool:
    """Whether the host of a URL can be one at all; that of a URL in a Secret (None) may."""
    if url is None:
        return True
    try:
        parse_host(host_of(url))
    except ValueError:
        return False
    return True


def _line(problem: Problem) -> str:
    # Without the value: a URL may hold a password.
    return f"{problem.field}: {problem.message}. {problem.remedy}"


def _users(resources: Resources) -> dict[str, dict[str, HoldCause]]:
    """The destinations that name a Secret, by the Secret's name, each with what it takes there."""
    users: dict[str, dict[str, HoldCause]] = {}
    for name, resource in resources.by_kind["ListenerDestination"].items():
        if not may_be_built(resource):
            continue
        for field in ("destinationFrom", "tls", "credentials"):
            for secret in _secret_names(resource.spec.get(field)):
                users.setdefault(secret, {}).setdefault(name, _CAUSES[field])
    return users


def _secret_names(value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key == "name" and isinstance(inner, str):
            yield inner
        yield from _secret_names(inner)
