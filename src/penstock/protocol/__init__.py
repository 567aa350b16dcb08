"""Typed messages between workers and between a worker and the driver; the only thing that crosses a socket."""
