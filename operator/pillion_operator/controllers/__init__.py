"""From what is known of the cluster to what is written: one level-based reconcile for each kind."""
