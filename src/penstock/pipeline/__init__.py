"""What users write: streams, their typed graph, and the plan that is laid out from it."""
