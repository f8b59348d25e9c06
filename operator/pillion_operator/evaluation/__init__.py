"""The evaluation of the resources of a namespace. Pure: it reads no cluster and writes nothing."""
