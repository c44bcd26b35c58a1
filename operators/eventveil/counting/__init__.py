"""From decoded events to counts: which timestamp, which user, how often, and the state of that."""
