"""Records as bytes by a schema, Avro or Protobuf, with or without a schema registry."""
