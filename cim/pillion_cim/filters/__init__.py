"""Filter queries: WQL and the useful part of DMTF:CQL, compiled once, evaluated often (D.4).

Only :func:`compile_filter` and what it returns are needed from outside.
"""

from pillion_cim.filters.demand import Demand
from pillion_cim.filters.errors import FilterError
from pillion_cim.filters.filter import Filter, compile_filter

__all__ = ["Demand", "Filter", "FilterError", "compile_filter"]
