"""Studies: the papers' figures measured again, and what they only ask, one command each: `penstock bench study`."""

from penstock.bench.studies.base import Study, StudyOptions, conduct
from penstock.bench.studies.burst import BurstStudy
from penstock.bench.studies.components import Components
from penstock.bench.studies.dynamism import Dynamism
from penstock.bench.studies.failure import Failure
from penstock.bench.studies.groups import GroupsStudy
from penstock.bench.studies.isolation import Isolation
from penstock.bench.studies.latency_target import LatencyTarget
from penstock.bench.studies.operations import Operations
from penstock.bench.studies.rates import Rates
from penstock.bench.studies.scale import Scale
from penstock.bench.studies.state import State
from penstock.bench.studies.switch_point import SwitchPoint
from penstock.bench.studies.throughput import Throughput

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Rates(),
        BurstStudy(),
        Components(),
        Operations(),
        Throughput(),
        SwitchPoint(),
        GroupsStudy(),
        LatencyTarget(),
        Failure(),
        Scale(),
        State(),
        Isolation(),
        Dynamism(),
    )
}
"""In the order in which the report shows them."""

__all__ = ["STUDIES", "Study", "StudyOptions", "conduct"]
