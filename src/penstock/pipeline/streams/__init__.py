"""What users write: a stream, whose verbs are sorted by what they are about."""
