"""From the bytes of events to user, column and time: ``rules`` is the one truth, the rest is fast."""
