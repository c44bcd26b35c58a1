"""The page that a worker serves."""
