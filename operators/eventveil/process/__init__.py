"""What a process has and is limited by: clock, memory, files, patience, points of failure for tests."""
