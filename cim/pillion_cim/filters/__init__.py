"""Filter queries: WQL and the useful part of DMTF:CQL, compiled once, evaluated often (D.4).

Only :func:`compile_filter`, what it returns and the length of a query are needed from outside.
"""

from pillion_cim.filters.compiler import Demand
from pillion_cim.filters.dialect import FilterError
from pillion_cim.filters.filter import Filter, compile_filter
from pillion_cim.filters.parser import MAX_QUERY_LENGTH

__all__ = ["MAX_QUERY_LENGTH", "Demand", "Filter", "FilterError", "compile_filter"]
