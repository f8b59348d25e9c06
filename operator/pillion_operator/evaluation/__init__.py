"""What the resources of a namespace mean together. Pure: nothing here asks or writes anything."""
