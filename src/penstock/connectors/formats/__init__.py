"""Records as bytes by a schema: Avro, Protobuf or JSON, with or without a schema registry."""
