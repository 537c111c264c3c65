"""Pure rules without I/O: time and random numbers are arguments."""
