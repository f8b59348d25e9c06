"""Polls deliverers for their destination queues, and sums up their reports."""
