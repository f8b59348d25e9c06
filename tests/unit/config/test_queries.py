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


@pytest.mark.parametrize("language", ["WQL", "DMTF:CQL"])
def test_a_list_of_properties_names_those_of_the_class(check, language):
    assert check("SELECT EventID, Message FROM CIM_AlertIndication", language) is None
    problem = check("SELECT EventID, Mesage FROM CIM_AlertIndication", language)
    assert (problem.line, problem.column, problem.is_warning) == (1, 17, False)
    assert problem.message == "CIM_AlertIndication has no property Mesage"
    assert problem.remedy == "Did you mean Message?"


def test_a_list_of_an_unknown_class_is_a_warning_of_the_class_alone(check):
    problem = check("SELECT Bay FROM HP_AlertIndication", "DMTF:CQL")
    assert problem.is_warning
    assert "HP_AlertIndication" in problem.message
