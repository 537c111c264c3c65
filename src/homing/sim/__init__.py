"""Virtual time and the simulated world."""
