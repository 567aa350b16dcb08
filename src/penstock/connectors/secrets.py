"""What connectors keep credentials out of their texts with."""

from penstock.redaction import HIDDEN, Secret, one_line, redacted

__all__ = ["HIDDEN", "Secret", "one_line", "redacted"]
