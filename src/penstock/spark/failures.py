"""Tasks that fail: where Spark tries them again for ever, somebody has to look."""

from __future__ import annotations

from typing import Any

TASKS_LOOKED_AT_MAX = 100


def failures(session: Any, group: str) -> tuple[int, str]:
    """How many tasks of a job group have failed until now, and what Spark says of one of them."""
    tracker, count, error = session.sparkContext.statusTracker(), 0, ""
    for job in tracker.getJobIdsForGroup(group):
        found = tracker.getJobInfo(job)
        for stage in found.stageIds if found is not None else ():
            info = tracker.getStageInfo(stage)
            if info is not None and info.numFailedTasks:
                count += info.numFailedTasks
                error = error or error_of(session.sparkContext, stage, info.currentAttemptId)
    return count, error


def error_of(context: Any, stage: int, attempt: int) -> str:
    """What Spark says of a task of a stage that has failed; empty where it does not say."""
    tasks = context._jsc.sc().statusStore().taskList(stage, attempt, TASKS_LOOKED_AT_MAX).iterator()
    while tasks.hasNext():
        message = tasks.next().errorMessage()
        if message.isDefined():
            return str(message.get())
    return ""
