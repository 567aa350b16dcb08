"""What touches the world: Spark, sockets, the clock, status files. Nothing below imports it."""
