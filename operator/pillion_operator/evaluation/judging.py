"""What is wrong with resources that are put together: the deliverer's own judgement.

The very function by which a deliverer loads its configuration says what it would complain of, so
what is accepted here is taken there.
"""

import hashlib
from collections.abc import Iterable, Mapping

from pillion_cim.schema import Schema
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.parsing import Resource, Resources, Secret
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.queries import CheckQuery, FilterProblem, Queries, query_checker
from pillion_sidecar.config.resolving import resolve

#: Queries whose outcome is remembered.
MOST_QUERIES = 20_000


def remembering(check: CheckQuery) -> CheckQuery:
    """``check``, asked once for each query; the least recently asked is forgotten first."""
    known: dict[bytes, FilterProblem | None] = {}

    def remembered(query: str, language: str) -> FilterProblem | None:
        # A digest: the texts of queries that nobody has any more would take all the memory.
        asked = hashlib.sha256(f"{language}\n{query}".encode(errors="replace")).digest()
        outcome = known.pop(asked) if asked in known else check(query, language)
        known[asked] = outcome
        if len(known) > MOST_QUERIES:
            del known[next(iter(known))]
        return outcome

    return remembered


class Judge:
    """Puts resources together, and tells what a deliverer would say."""

    def __init__(self, *, addresses: AddressPolicy, schema: Schema) -> None:
        self._addresses = addresses
        self._queries = Queries(schema, checker=lambda classes: remembering(query_checker(classes)))

    def problems(
        self,
        resources: Iterable[Resource],
        *,
        secrets: Mapping[str, Secret],
        service: str | None = None,
    ) -> tuple[Problem, ...]:
        """All that a deliverer of ``service`` would complain of."""
        together = Resources(secrets=dict(secrets))
        for resource in resources:
            together.by_kind[resource.kind.name][resource.name] = resource
        try:
            resolve(
                together,
                service=service,
                addresses=self._addresses,
                queries=self._queries,
                # Not to be worked out: nobody reads it.
                revision="",
            )
        except ConfigurationError as error:
            return error.problems
        return ()
