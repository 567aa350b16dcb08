"""Ends a query whose tasks fail, in a Spark that would try them again and again: it was started to host workers.

Spark has one limit for all jobs of a context, and workers need a high one: a task that is lost is a worker that comes
back. What fails in a query, such as a function of the user's, fails again each time. The jobs of a guarded session are
in a job group of their own, which a thread looks at.
"""

from __future__ import annotations

import threading
from typing import Any

from penstock.spark.failures import error_of

GROUP = "penstock-backfill"
GROUP_SETTING = "spark.jobGroup.id"
WATCH_S = 0.2
FAILURES_MAX = 4
"""Failed tasks that end a job on a cluster, where a machine may be lost; on one machine the first one does."""

_lock = threading.Lock()
_watched: set[int] = set()


def guarded(session: Any) -> Any:
    """Have the jobs of a session end when their tasks fail; returns the session."""
    # Spark hands a session's settings to its jobs as their properties, of which the group is one.
    session.conf.set(GROUP_SETTING, GROUP)
    context = session.sparkContext
    with _lock:
        if id(context) not in _watched:
            _watched.add(id(context))
            threading.Thread(target=_watch, args=[context], name="penstock-guard", daemon=True).start()
    return session


def _watch(context: Any) -> None:
    pause = threading.Event()
    failures_max = 1 if context.master.startswith("local") else FAILURES_MAX
    try:
        while context._jsc is not None:
            _end_failing(context, failures_max)
            pause.wait(WATCH_S)
    except Exception:  # Spark is ending, and with it what there was to watch
        pass
    finally:
        with _lock:
            _watched.discard(id(context))


def _end_failing(context: Any, failures_max: int) -> None:
    tracker = context.statusTracker()
    for job in tracker.getJobIdsForGroup(GROUP):
        info = tracker.getJobInfo(job)
        if info is None or info.status != "RUNNING":
            continue
        stages = [found for found in map(tracker.getStageInfo, info.stageIds) if found is not None]
        failed = [found for found in stages if found.numFailedTasks]
        if sum(found.numFailedTasks for found in failed) >= failures_max:
            cause = error_of(context, failed[0].stageId, failed[0].currentAttemptId)
            context._jsc.sc().cancelJob(job, f"a task has failed:\n{cause or 'Spark does not say why'}")
