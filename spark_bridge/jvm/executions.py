"""The state of Spark's executions and jobs, from the driver's JVM."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway, JavaMember, JavaObject

_SCANS = {"BatchScanExec", "FileSourceScanExec", "LocalTableScanExec", "RangeExec", "RowDataSourceScanExec"}
"""Spark's leaves of plans that read, or compute, the same way each time."""

_log = logging.getLogger("structable.spark")


class SparkExecutions:
    """Asks Spark, in some 0.2 ms; thread-safe. Does not keep the application alive.

    Each Python thread that calls the JVM leaves a thread and a connection behind there. The coordinator has a thread
    for each reader, so a single thread of this class makes all calls.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = weakref.ref(context)
        self._find: JavaMember | None = None
        self._questions: queue.SimpleQueue[tuple[Callable[[], bool], queue.SimpleQueue[bool | None]] | None]
        self._questions = queue.SimpleQueue()
        weakref.finalize(self, self._questions.put, None)
        threading.Thread(
            target=_answer, args=(self._questions,), name="structable-coordinator-executions", daemon=True
        ).start()

    def runs(self, execution: int) -> bool:
        return self._asked(lambda: self._runs(execution))

    def runs_stage(self, stage: int) -> bool:
        return self._asked(lambda: self._runs_stage(stage))

    def runs_any_job(self) -> bool:
        return self._asked(self._runs_any_job)

    def reads_all_again(self, execution: int, stage: int) -> bool:
        return self._asked(lambda: self._reads_all_again(execution, stage), unknown=False)

    def _asked(self, question: Callable[[], bool], *, unknown: bool = True) -> bool:
        answer: queue.SimpleQueue[bool | None] = queue.SimpleQueue()
        self._questions.put((question, answer))
        answered = answer.get()
        return unknown if answered is None else answered

    def _query(self, execution: int) -> JavaObject | None:
        if self._find is None:
            context = self._context()
            if context is None or context._jvm is None:
                raise RuntimeError("the application has ended")
            self._find = context._jvm.org.apache.spark.sql.execution.SQLExecution.getQueryExecution
        found: JavaObject | None = self._find(execution)
        return found

    def _runs(self, execution: int) -> bool:
        return self._query(execution) is not None

    def _reads_all_again(self, execution: int, stage: int) -> bool:
        context, query = self._context(), self._query(execution)
        if context is None or context._jsc is None or query is None:
            return False
        found = context._jsc.sc().dagScheduler().stageIdToStage().get(stage)
        if found.isEmpty() or not _is_alone(found.get()):
            return False
        plan = query.executedPlan()
        return bool(plan.subqueriesAll().isEmpty()) and _keeps_nothing(context._gateway, plan)

    def _runs_stage(self, stage: int) -> bool:
        context = self._context()
        if context is None or context._jsc is None:
            return True
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
        return any(job is not None and stage in job.stageIds for job in jobs)

    def _runs_any_job(self) -> bool:
        context = self._context()
        return context is None or context._jsc is None or bool(context.statusTracker().getActiveJobsIds())


def _is_alone(stage: JavaObject) -> bool:
    """Return whether a stage neither shuffles, as a limit may do outside its plan, nor persists data.

    Spark computes again only the lost parts of data that it keeps.
    """
    if stage.getClass().getSimpleName() != "ResultStage" or not stage.parents().isEmpty():
        return False
    rdds = stage.latestInfo().rddInfos()
    return not any(rdds.apply(number).storageLevel().isValid() for number in range(rdds.size()))


def _keeps_nothing(gateway: JavaGateway, plan: JavaObject) -> bool:
    """Return whether a physical plan reads everything again when it is executed again.

    Shuffles, the broadcast sides of joins, stages of adaptive execution, subqueries and cached frames stay as they are.
    """
    children = plan.children()
    if children.isEmpty():
        return plan.getClass().getSimpleName() in _SCANS
    if is_instance_of(gateway, plan, "org.apache.spark.sql.execution.exchange.Exchange"):
        return False
    return all(_keeps_nothing(gateway, children.apply(number)) for number in range(children.size()))


def _answer(questions: queue.SimpleQueue[tuple[Callable[[], bool], queue.SimpleQueue[bool | None]] | None]) -> None:
    while (asked := questions.get()) is not None:
        question, answer = asked
        try:
            answer.put(question())
        except Exception:
            # The application is ending, or Spark lacks the class: the lease alone decides. Readers wait for an answer.
            _log.debug("Spark cannot say which queries run; leases alone end snapshots", exc_info=True)
            answer.put(None)
        del asked, question, answer  # references that would keep the owner, and so this thread, alive until the next
