"""What the deliverers say of their destination queues, and what that comes to."""
