"""The central scheduler: a pure state machine, and the monitor that sums up what workers report."""
