"""The guarantees of streams in plain words."""
