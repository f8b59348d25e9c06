"""The Spark data source "pillion" and the publish() helper."""
