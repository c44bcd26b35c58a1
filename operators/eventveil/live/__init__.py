"""The page that a worker serves: what its sinks and its health tell, which is public, and nothing else."""
