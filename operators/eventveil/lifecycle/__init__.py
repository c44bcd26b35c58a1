"""From nothing to a running stream and on to its next terms: manifest, topics, migration, reset."""
