"""What can be seen of a running worker: metrics, their endpoint, health."""
