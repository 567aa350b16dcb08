"""What every source, sink and table must do, as checks that authors of connectors run in their own tests."""

from penstock.testing.conformance.report import Conformance
from penstock.testing.conformance.sinks import check_sink
from penstock.testing.conformance.sources import check_source
from penstock.testing.conformance.tables import check_table

__all__ = ["Conformance", "check_sink", "check_source", "check_table"]
