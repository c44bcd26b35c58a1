"""Programs that count the events of a feed, each a process of its own."""
