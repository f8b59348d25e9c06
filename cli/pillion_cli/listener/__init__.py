"""A real listener for trying things: CIM-XML and CloudEvents, and as bad as it is told to be."""
