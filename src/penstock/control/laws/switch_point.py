"""DO-4: the queue length from which the batch form answers sooner than the record form; `control/switching.py` asks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InvalidOption

SWITCH_RECORDS_MIN = 1.0
"""A single waiting record is no burst, however cheap the batch form is."""
US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class SwitchInputs:
    """What the law needs to know, all of it measured.

    Attributes
    ----------
    arrival_eps : float
        V, the rate at which records arrive.
    record_eps, batch_eps : float
        PD and PO, the rates at which either form gets work done when it has enough of it.
    interval_us : float
        T, the micro-batch interval.
    schedule_us : float
        t_s, the time from the end of an interval to the start of its micro-batch.
    batch_transmit_us, record_transmit_us : float
        t_ot and t_dt, the time that either form takes to hand its output on.
    """

    arrival_eps: float
    record_eps: float
    batch_eps: float
    interval_us: float
    schedule_us: float
    batch_transmit_us: float
    record_transmit_us: float


@dataclass(frozen=True, slots=True)
class SwitchPoint:
    """The law's answer: K, C, and the queue lengths at which forms change."""

    k: float
    c_us: float
    switch_records: float
    up_records: float
    down_records: float


def switch_point(inputs: SwitchInputs, delta: float) -> SwitchPoint:
    """Return the queue lengths above which batches, and below which single records, are the better form.

    ``L_switch = K*V*T + C*PD`` with ``K = PD/PO`` and ``C = T/2 + t_s + t_ot - t_dt``; ``delta`` keeps the way up and
    the way back apart.

    Notes
    -----
    Measured inputs can be odd, and the answer must stay usable:

    - C below 0 (single records take longer on the way than all that a micro-batch waits for) counts as 0.
    - A negative rate or time counts as 0; so does one that is not a number.
    - PD of 0: the record form gets nothing done, so the least queue is too long.
    - PO of 0: the batch form gets nothing done, so no queue is long enough (infinite).
    - L_switch is at least one record.
    """
    if not 0.0 < delta < 1.0:
        raise InvalidOption(option="delta", given=delta, allowed="a number between 0 and 1, both excluded")
    arrival_eps, record_eps, batch_eps = (
        max(0.0, rate) for rate in (inputs.arrival_eps, inputs.record_eps, inputs.batch_eps)
    )
    interval_us, schedule_us, batch_transmit_us, record_transmit_us = (
        max(0.0, time)
        for time in (inputs.interval_us, inputs.schedule_us, inputs.batch_transmit_us, inputs.record_transmit_us)
    )
    c_us = max(0.0, interval_us / 2 + schedule_us + batch_transmit_us - record_transmit_us)
    if batch_eps == 0.0:
        k = switch_records = float("inf")
    else:
        k = record_eps / batch_eps
        # K*V*T is what the record form gets done while a micro-batch is processed; C*PD, while it waits and travels.
        switch_records = k * arrival_eps * interval_us / US_PER_S + c_us / US_PER_S * record_eps
    switch_records = max(SWITCH_RECORDS_MIN, switch_records)
    return SwitchPoint(k, c_us, switch_records, (1 + delta) * switch_records, (1 - delta) * switch_records)
