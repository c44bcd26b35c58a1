"""Every public and durable record, byte by byte."""
