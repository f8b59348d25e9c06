"""The addresses of clusters beside each other."""

import ipaddress
from itertools import combinations

import pytest

from pillion_testbed.network import CLUSTERS, NODES, Addresses, NetworkFailed, run

ALL = [Addresses(index) for index in range(CLUSTERS)]


def test_the_first_has_the_usual_addresses() -> None:
    first = ALL[0]
    assert (first.node(1), first.services, first.dns) == (
        "198.18.0.1",
        "10.96.0.0/16",
        "10.96.0.10",
    )


def test_no_two_clusters_share_an_address_or_a_name() -> None:
    ranges = [ipaddress.ip_network(one.services) for one in ALL]
    ranges += [ipaddress.ip_network(one.pods) for one in ALL]
    assert not any(one.overlaps(other) for one, other in combinations(ranges, 2))
    nodes = [one.node(number) for one in ALL for number in range(1, NODES + 1)]
    nodes += [one.host for one in ALL]
    assert len(set(nodes)) == len(nodes)
    assert len({one.interface for one in ALL}) == CLUSTERS


def test_nodes_are_in_the_range_for_benchmarks_and_the_rest_is_private() -> None:
    benchmarks = ipaddress.ip_network("198.18.0.0/15")
    private = ipaddress.ip_network("10.0.0.0/8")
    for one in ALL:
        assert ipaddress.ip_address(one.host) in benchmarks
        assert ipaddress.ip_network(one.pods).subnet_of(private)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", [-1, CLUSTERS])
def test_an_index_out_of_range_is_refused(index: int) -> None:
    with pytest.raises(NetworkFailed, match=f"index {index}: choose one from 0 to 9"):
        Addresses(index)


@pytest.mark.parametrize("number", [0, NODES + 1])
def test_a_node_too_many_is_refused(number: int) -> None:
    with pytest.raises(NetworkFailed, match=f"node {number}: a cluster has at most 9"):
        ALL[0].node(number)


def test_a_command_that_failed_says_what_it_was_and_what_it_said() -> None:
    with pytest.raises(NetworkFailed, match=r"sh -c.*\n.*line one\n.*ended with 3: sorry"):
        run(("sh", "-c", "echo sorry >&2; exit 3"), given="line one\n")
    assert run(("cat",), given="text") == "text"
