"""Whether a Spark session that the user has made can host a job: used, or refused with what to set; `Job` asks.

======================================  ==========================================================================
the session                             what becomes of the job
======================================  ==========================================================================
is one of Spark Connect                 refused: its driver is elsewhere, workers could not reach this process
has another master than the job         refused
has fewer cores than workers and one    refused: the session's own jobs would wait for ever
may grow, and far enough                used: it adds executors while tasks wait
has no core for a slot besides          record form only, with a warning; refused where batch form was asked for
has fewer cores than workers and slots  used, with fewer slots
runs tasks twice (speculation)          refused: two processes of one worker would replace each other
gives a task up after a few losses      refused: the job would end with it
is not local and not authenticated      refused unless the user says otherwise: the job's key travels through it
has workers of another Python           the tasks fail before they speak; the error names PYSPARK_PYTHON
======================================  ==========================================================================

`judged` is pure; `facts_of` asks Spark.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from time import monotonic, sleep
from typing import TYPE_CHECKING

from penstock.control.pins import first_pins
from penstock.errors import InvalidOption, SessionRefused
from penstock.operators import Form
from penstock.pipeline.options import Forms
from penstock.pipeline.plan import Plan
from penstock.spark.sessions import TASK_FAILURES_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECRET_VARIABLE = "PENSTOCK_SPARK_SECRET"
UNAUTHENTICATED_VARIABLE = "PENSTOCK_SPARK_UNAUTHENTICATED"
"""Set to 1: Spark's connections to a cluster may go without a secret."""
TASK_FAILURES_MIN = 100
"""A session that gives tasks up sooner would end a long job."""
CORES_OTHERS = 1
"""Cores that are left to the other jobs of a session."""
SETTLE_S = 10.0
"""How long the executors of a session may take to come up."""


@dataclass(frozen=True, kw_only=True)
class SessionFacts:
    """What a session is like.

    Attributes
    ----------
    master : str
        Its Spark master.
    cores : int
        Tasks that can run side by side now.
    cores_max : int or None
        What dynamic allocation may make of them; None: there is no limit. Without it, as many as ``cores``.
    speculates : bool
        Whether Spark starts a second process for a task that is slow.
    task_failures_max : int
        Losses of one task that end its job.
    authenticates : bool
        Whether its processes have a common secret.
    """

    master: str
    cores: int
    cores_max: int | None
    speculates: bool
    task_failures_max: int
    authenticates: bool

    @property
    def is_local(self) -> bool:
        """Whether it has no process on another machine."""
        return self.master.startswith("local")


def judged(plan: Plan, facts: SessionFacts, *, unauthenticated: bool = False) -> tuple[Plan, str]:
    """Return the plan as the session can host it, and what is to be said about that.

    Raises
    ------
    SessionRefused
        With everything that is to be set.
    """
    options, workers, problems = plan.options, plan.workers, []
    if options.master not in ("local", facts.master):
        problems.append(f'it runs on "{facts.master}", the job is to run on "{options.master}": leave master= away')
    batch, needed = _wants_batch(plan), cores_needed(plan)
    if facts.cores_max is not None and facts.cores_max < needed:
        slot = ", one for a slot of the batch form" if batch else ""
        slot = f", {plan.replicas} for replicas{slot}" if plan.replicas else slot
        how = f'a session with "local[{needed},{TASK_FAILURES_MAX}]"' if facts.is_local else "a larger cluster"
        fewer = facts.cores_max + workers - needed
        how = f"parallelism={fewer} or {how}" if fewer > 0 else how
        problems.append(
            f"it has {facts.cores_max} cores, and {needed} are needed: {workers} for the workers{slot}, and "
            f"{CORES_OTHERS} for its other jobs, which would wait for ever: take {how}"
        )
    if facts.speculates:
        problems.append("it would run workers twice: set spark.speculation=false")
    if facts.task_failures_max < TASK_FAILURES_MIN:
        local, elsewhere = f'master "local[N,{TASK_FAILURES_MAX}]"', f"spark.task.maxFailures={TASK_FAILURES_MAX}"
        problems.append(
            f"it would end the job when a worker is lost {facts.task_failures_max} times: set "
            f"{local if facts.is_local else elsewhere}"
        )
    if not (facts.is_local or facts.authenticates or unauthenticated):
        problems.append(
            "its connections are not authenticated, and the job's key travels through them: set spark.authenticate, "
            f"spark.authenticate.secret and spark.network.crypto.enabled, or say {UNAUTHENTICATED_VARIABLE}=1"
        )
    if problems:
        raise SessionRefused(problems)
    if facts.cores_max is None:
        return plan, ""
    spare = facts.cores_max - workers - plan.replicas - CORES_OTHERS
    if not spare:
        note = f"the Spark session has {facts.cores_max} cores, none of them for slots: operations stay in record form"
        return replace(plan, options=replace(options, forms=Forms.RECORD)), note
    return replace(plan, options=replace(options, slots=min(options.slots or workers, spare))), ""


def fitted(plan: Plan, session: SparkSession) -> tuple[Plan, str]:
    """Judge a session of the user's; executors that are on their way up are waited for."""
    deadline, facts = monotonic() + SETTLE_S, facts_of(session)
    while not facts.is_local and monotonic() < deadline:
        if facts.cores_max is None or facts.cores_max >= cores_needed(plan):
            break
        sleep(0.2)
        facts = facts_of(session)
    return judged(plan, facts, unauthenticated=is_unauthenticated())


def cores_needed(plan: Plan) -> int:
    """Cores without which a session of the user's does not do: workers, replicas, a slot where one must be, others."""
    return plan.workers + plan.replicas + _wants_batch(plan) + CORES_OTHERS


def _wants_batch(plan: Plan) -> bool:
    return Form.BATCH in first_pins(plan).values()


def check_master(plan: Plan) -> None:
    """Refuse a local master that has no core for a slot where the user has settled the batch form."""
    threads = re.match(r"local\[(\d+)", plan.options.master)
    if threads and _wants_batch(plan) and int(threads[1]) <= plan.workers:
        allowed = f"at least {plan.workers + 1} slots: one for each worker, and one for the batch form"
        raise InvalidOption(option="master", given=plan.options.master, allowed=allowed)


def is_unauthenticated() -> bool:
    """Whether the user has said that connections to a cluster may go without a secret."""
    return os.environ.get(UNAUTHENTICATED_VARIABLE) == "1"


def facts_of(session: SparkSession) -> SessionFacts:
    """Ask a session what it is like."""
    context = session.sparkContext
    conf, master = context.getConf(), context.master
    cores = cores_of(session)

    def is_on(name: str) -> bool:
        return (conf.get(name) or "false").lower() == "true"

    cores_max: int | None = cores
    if is_on("spark.dynamicAllocation.enabled"):
        executors = conf.get("spark.dynamicAllocation.maxExecutors")
        each = conf.get("spark.executor.cores")
        cores_max = max(cores, int(executors) * int(each)) if executors and each else None
    return SessionFacts(
        master=master,
        cores=cores,
        cores_max=cores_max,
        speculates=is_on("spark.speculation"),
        task_failures_max=task_failures_max(master, conf.get("spark.task.maxFailures")),
        authenticates=is_on("spark.authenticate"),
    )


def task_failures_max(master: str, setting: str | None) -> int:
    """Losses of one task that end its job: Spark takes it from the master where that is local, else from a setting."""
    if master.startswith("local"):
        given = re.fullmatch(r"local\[.*,\s*(\d+)\s*\]", master)
        return int(given[1]) if given else 1
    return int(setting) if setting else 4


def cores_of(session: SparkSession) -> int:
    """How many tasks can run side by side in the cluster now, whoever's they are."""
    context = session.sparkContext._jsc.sc()
    return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
