"""The CIM model, the CIM-XML export codec and the filter query languages.

Pure: no sockets, no clock.
"""
