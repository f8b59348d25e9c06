"""The typed JSON form of instances, after CIM-RS (DSP0211).

``{"class": "CIM_AlertIndication", "properties": {"AlertType": 5, …}}``. A value's CIM type comes
from its class, or is stated: ``{"type": "uint16", "value": 3}``, with ``"array": true`` for an
array. Values are written so:

- integers as JSON integers; those of 64 bits also as decimal text, which is always understood;
- reals as numbers; the three that JSON lacks as ``"NaN"``, ``"INF"``, ``"-INF"`` (DSP0201);
- datetimes as their 25 characters; a point in time is also understood in RFC 3339;
- an embedded instance as an instance; its type is stated as ``instance`` or ``object``;
- a reference as ``{"class": …, "keys": {…}, "namespace": …, "host": …}``.
"""

from pillion_cim.jsonform.decode import InstanceError, Problem, decode_instance
from pillion_cim.jsonform.encode import encode_instance

__all__ = ["InstanceError", "Problem", "decode_instance", "encode_instance"]
