"""The demo: two weeks of real flights through a real worker, in two to three minutes."""
