import pytest

from pillion_cim.schema import load_schema
from pillion_sidecar.config.queries import query_checker


@pytest.fixture(scope="module")
def check():
    return query_checker(load_schema())


@pytest.mark.parametrize("language", ["WQL", "DMTF:CQL"])
def test_a_query_that_compiles_is_fine(check, language):
    assert check("SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity > 4", language) is None


def test_a_query_that_does_not_says_where(check):
    problem = check("SELECT * FROM CIM_AlertIndication WHERE Severity > 4", "WQL")
    assert (problem.line, problem.column) == (1, 41)
    assert "Severity" in problem.message


def test_a_list_of_properties_is_refused_since_all_would_be_delivered(check):
    problem = check("SELECT EventID FROM CIM_AlertIndication", "WQL")
    assert "SELECT *" in problem.remedy
