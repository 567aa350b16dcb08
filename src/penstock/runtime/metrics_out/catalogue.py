"""Every metric there is, with its unit and meaning; the sampler fills them, outlets and docs/metrics.md name them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """How a metric behaves over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    """Only grows while the job runs; what was replayed after a crash counts again."""


@dataclass(frozen=True)
class Metric:
    """One field of a measurement; for Prometheus a metric of its own."""

    measurement: str
    field: str
    unit: str
    help: str

    @property
    def name(self) -> str:
        """As Prometheus knows it; InfluxDB and files have the measurement and the field apart."""
        return f"penstock_{self.measurement}_{self.field}"

    @property
    def kind(self) -> Kind:
        """Counters are told by their name, as is usual with Prometheus."""
        return Kind.COUNTER if self.field.endswith("_total") else Kind.GAUGE


JOB, JOB_COMPONENT, OPERATION, COMPONENT = "job", "job_component", "operation", "component"
PROCESS, PHASE, OUTLET, INSTANCE = "process", "phase", "outlet", "instance"
SWITCH, MOVE, SHIFT = "switch", "move", "shift"
"""Events: InfluxDB and files have each of them with its own time, Prometheus what is counted."""
LATENCY = "penstock_job_latency_seconds"
"""The histogram that only Prometheus gets: others have percentiles of every interval."""
LATENCY_HELP = "Latency of records from their scheduled time, where end-to-end latency is taken."

METRICS = tuple(
    Metric(*each)
    for each in (
        (JOB, "uptime_seconds", "s", "Time since the driver came up."),
        (JOB, "in_records_per_second", "records/s", "What all sources read, at the moment."),
        (JOB, "out_records_per_second", "records/s", "What all sinks take, at the moment."),
        (JOB, "records_in_total", "records", "What all sources have read."),
        (JOB, "records_out_total", "records", "What all sinks have taken."),
        (JOB, "queue_records", "records", "Records that wait, over all operations."),
        (JOB, "latency_p50_seconds", "s", "End-to-end latency since the last sample: half of the records are below."),
        (JOB, "latency_p90_seconds", "s", "End-to-end latency since the last sample: 90 % of the records are below."),
        (JOB, "latency_p99_seconds", "s", "End-to-end latency since the last sample: 99 % of the records are below."),
        (JOB, "latency_p999_seconds", "s", "End-to-end latency since the last sample: 99.9 % are below."),
        (JOB, "latency_max_seconds", "s", "End-to-end latency since the last sample: the highest."),
        (JOB, "epochs_total", "epochs", "Epochs committed."),
        (JOB, "epoch_seconds", "s", "From the start of the last epoch's commit to its end."),
        (JOB, "recoveries_total", "recoveries", "Times that instances were built anew from snapshots."),
        (JOB, "switches_total", "switches", "Switches of form."),
        (JOB, "switches_advised_total", "switches", "Switches that would have been made; only with advise."),
        (JOB, "switch_pause_seconds", "s", "The last switch's longest time without output, over the instances."),
        (JOB, "switch_seconds", "s", "The last switch, from the decision to its effect."),
        (JOB, "switch_carried_records", "records", "What the last switch handed over."),
        (JOB, "group_micro_batches", "micro-batches", "Micro-batches that each task of the next group runs."),
        (JOB, "scheduling_overhead_ratio", "ratio", "Share of scheduling in the time of a group, averaged."),
        (JOB, "workers", "processes", "Workers that have been heard of."),
        (JOB, "workers_wanted", "processes", "Workers that the job is to have."),
        (JOB, "slots", "processes", "Processes that run micro-batches, or stand by for them."),
        (JOB, "replicas", "processes", "Processes that compute operations side by side, or stand by for that."),
        (JOB, "replicas_active", "processes", "Those of them that compute some operation."),
        (JOB, "replica_seconds_total", "s", "Time of active replicas; a range without any counts its instances."),
        (JOB, "replicas_saved_ratio", "ratio", "1 - r/r_over so far: share of the pool's time that was not needed."),
        (JOB, "moves_total", "moves", "Moves of instances from one worker to another."),
        (JOB, "move_pause_seconds", "s", "The last move: for how long its instance stood still, at most."),
        (JOB, "move_seconds", "s", "The last move, from the decision to its effect."),
        (JOB, "move_bytes_total", "bytes", "State that new owners have loaded ahead of moves."),
        (JOB, "shifts_total", "shifts", "Times that key groups have gone from one instance to another."),
        (JOB, "shift_pause_seconds", "s", "The last shift: for how long both instances stood still, at most."),
        (JOB, "shift_seconds", "s", "The last shift, from the decision to its effect."),
        (JOB, "shift_groups_total", "key groups", "Key groups that have gone to another instance."),
        (JOB, "shift_bytes_total", "bytes", "State that was loaded ahead of shifts."),
        (JOB_COMPONENT, "mean_seconds", "s", "A component of mean end-to-end latency, at the moment."),
        (OPERATION, "in_records_per_second", "records/s", "What it takes, at the moment."),
        (OPERATION, "out_records_per_second", "records/s", "What it gives, at the moment."),
        (OPERATION, "records_in_total", "records", "What it has taken."),
        (OPERATION, "records_out_total", "records", "What it has given."),
        (OPERATION, "selectivity_ratio", "ratio", "Records out for each record in."),
        (OPERATION, "queue_records", "records", "Records that wait before it."),
        (OPERATION, "replicas", "processes", "Replicas that compute it; 0: the workers do."),
        (OPERATION, "replicas_wanted", "processes", "Processes that are to compute it; 1: the worker itself."),
        (OPERATION, "replicas_least", "processes", "The fewest that are configured."),
        (OPERATION, "replicas_most", "processes", "The most that are configured, within the pool."),
        (OPERATION, "replica_activations_total", "activations", "Times that a replica became active for it."),
        (OPERATION, "service_seconds", "s", "Time spent on one record."),
        (OPERATION, "latency_p50_seconds", "s", "Latency up to here at the moment: half of the records are below."),
        (OPERATION, "latency_p99_seconds", "s", "Latency up to here at the moment: 99 % of the records are below."),
        (OPERATION, "block_records", "records", "Records in a block or micro-batch, on average."),
        (OPERATION, "batch_form", "0 or 1", "1 while it runs in batch form."),
        (OPERATION, "instances", "instances", "Instances that have been heard of."),
        (OPERATION, "late_total", "records", "Records that came after their window was closed."),
        (OPERATION, "skipped_total", "records", "Bad records that were skipped."),
        (OPERATION, "retried_total", "records", "Attempts that were repeated."),
        (OPERATION, "dead_letters_total", "records", "Records that were put aside: bad ones, and dropped ones."),
        (OPERATION, "timed_out_total", "records", "Records dropped at the source: they waited beyond event_timeout."),
        (OPERATION, "over_bound_total", "records", "Records dropped at the source: more than queue_bound waited."),
        (OPERATION, "fallbacks_total", "batches", "Batches that the vectorised form left to the loop."),
        (COMPONENT, "mean_seconds", "s", "A component of a record's latency at an operation, on average."),
        (INSTANCE, "worker", "number", "The worker that an instance of an operation is on."),
        (PROCESS, "cpu_seconds_total", "s", "CPU time used."),
        (PROCESS, "resident_bytes", "bytes", "Resident memory."),
        (PHASE, "current", "1", "The phase that the job is in, as a label."),
        (OUTLET, "sent_total", "samples", "Samples that a place of metrics has taken."),
        (OUTLET, "failed_total", "attempts", "Attempts to hand a sample over that failed."),
        (OUTLET, "dropped_total", "samples", "Samples that a place of metrics never got."),
    )
)
NAMES = frozenset((each.measurement, each.field) for each in METRICS)
