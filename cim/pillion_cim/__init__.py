"""The CIM model, the CIM-XML export codec and the filter query languages.

Pure: no sockets, no clock.
"""


class CIMDataError(Exception):
    """The base of this package's errors about its input."""
