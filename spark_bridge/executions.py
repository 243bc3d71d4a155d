"""The state of Spark's executions and jobs, from the driver's JVM."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark import SparkContext

if TYPE_CHECKING:
    from py4j.java_gateway import JavaMember

__all__ = ["SparkExecutions"]

_log = logging.getLogger("structable.spark")


class SparkExecutions:
    """Asks Spark, in some 0.2 ms; thread-safe. Does not keep the application alive.

    Each Python thread that calls the JVM leaves a thread and a connection behind there. The coordinator has a thread
    for each reader, so a single thread of this class makes all calls.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = weakref.ref(context)
        self._find: JavaMember | None = None
        self._questions: queue.SimpleQueue[tuple[Callable[[], bool], queue.SimpleQueue[bool]] | None]
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

    def _asked(self, question: Callable[[], bool]) -> bool:
        answer: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._questions.put((question, answer))
        return answer.get()

    def _runs(self, execution: int) -> bool:
        if self._find is None:
            context = self._context()
            if context is None or context._jvm is None:
                return True
            self._find = context._jvm.org.apache.spark.sql.execution.SQLExecution.getQueryExecution
        return self._find(execution) is not None

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


def _answer(questions: queue.SimpleQueue[tuple[Callable[[], bool], queue.SimpleQueue[bool]] | None]) -> None:
    while (asked := questions.get()) is not None:
        question, answer = asked
        try:
            answer.put(question())
        except Exception:
            # The application is ending, or Spark lacks the class: the lease alone decides. Readers wait for an answer.
            _log.debug("Spark cannot say which queries run; leases alone end snapshots", exc_info=True)
            answer.put(True)
        del asked, question, answer  # references that would keep the owner, and so this thread, alive until the next
