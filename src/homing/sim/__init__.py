"""Virtual time and simulated receivers, for ``homing simulate`` and the simulator page."""
