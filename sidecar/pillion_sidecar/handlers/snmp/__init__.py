"""SNMP traps and informs over UDP."""
