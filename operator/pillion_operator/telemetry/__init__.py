"""What the operator tells about itself: metrics, probes."""
