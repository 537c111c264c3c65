"""Pure rules: no clock, no chance, no I/O; time and chance are arguments."""
