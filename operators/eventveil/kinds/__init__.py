"""What a kind of stream is: guarantee in words, topics, state, roles and audit, through one object each."""
