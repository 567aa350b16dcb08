"""Studies: the papers' figures measured again, and what they only ask, one command each: `penstock bench study`."""

from penstock_bench.studies.alternatives import Alternatives
from penstock_bench.studies.base import Study, StudyOptions, conduct
from penstock_bench.studies.burst import BurstStudy
from penstock_bench.studies.dynamism import Dynamism
from penstock_bench.studies.elasticity import Elasticity
from penstock_bench.studies.failure import Failure
from penstock_bench.studies.groups import GroupsStudy
from penstock_bench.studies.isolation import Isolation
from penstock_bench.studies.rates import Components, Operations, Rates
from penstock_bench.studies.replicas import Replicas
from penstock_bench.studies.scale import Scale
from penstock_bench.studies.short import Short
from penstock_bench.studies.state import State
from penstock_bench.studies.switch_point import SwitchPoint
from penstock_bench.studies.throughput import LatencyTarget, Throughput

_REPEATED = (Short, Rates, BurstStudy, Components, Operations, Throughput, SwitchPoint, GroupsStudy, LatencyTarget)
_ASKED = (Failure, Elasticity, Scale, State, Isolation, Dynamism, Alternatives, Replicas)
STUDIES: dict[str, Study] = {kind.name: kind() for kind in (*_REPEATED, *_ASKED)}
"""In the order in which the report shows them."""

__all__ = ["STUDIES", "Study", "StudyOptions", "conduct"]
