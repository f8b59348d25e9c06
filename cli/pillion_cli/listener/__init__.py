"""A listener for tests: CIM-XML and CloudEvents, with injected faults."""
