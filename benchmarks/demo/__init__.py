"""The demo: four weeks of real flights through a real worker, in three minutes."""
