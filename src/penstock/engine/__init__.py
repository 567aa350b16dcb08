"""How a part of a pipeline runs: units, edges, epochs; pure machines that a shell or a simulation drives."""
