"""Making a task from its durable state: one module per role, each with one function."""
