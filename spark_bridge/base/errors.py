"""Errors of the bridge reach the user of Spark as one line instead of a Python traceback."""

from __future__ import annotations

import base64
import os
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import TaskContext

from structable.spi import StructableError, TransactionClosedError

from .options import ReadOptions

CONTRACT_ERRORS = (StructableError, ValueError)
"""Errors that users get as one line."""

_CARRIED = "structable's error for the driver"


def snapshot_closed(options: ReadOptions) -> TransactionClosedError:
    """Return the error of a task whose plan the coordinator has closed."""
    return TransactionClosedError(
        f"table {options.table!r}: the snapshot of this query is closed: its query ended more than {options.grace:g} "
        f"seconds ago (option graceSeconds), no task read it for {options.lease:g} seconds (option leaseSeconds), or "
        "too many others are open. A plan that is executed again reads the table again only if Spark keeps no part of "
        "an earlier run, such as a broadcast side of a join, a subquery or a cached frame. To read the table as it is "
        'now, plan the query again by any transformation, as in df.select("*").collect(); to keep its rows, persist() '
        "the DataFrame, or give load() longer times"
    )


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Have Spark show errors of the contract without a traceback; unexpected ones keep theirs.

    For Spark's own Python processes, which end after they have reported an error.
    """
    try:
        yield
    except CONTRACT_ERRORS:
        # Spark reads this setting of its own when it reports the error. Nothing else runs in this process afterwards.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


@contextmanager
def carrying_errors(run: str) -> Iterator[None]:
    """Attach an error of a task to itself, in a note, since Spark passes on only its text; see `carried_error`.

    Any error that is not structable's becomes a `StructableError` in the driver.
    """
    try:
        yield
    except Exception as error:
        carried = error if isinstance(error, StructableError) else StructableError(f"{type(error).__name__}: {error}")
        error.add_note(f"{_CARRIED} {run} {base64.b64encode(pickle.dumps(carried)).decode()}")
        raise


def carried_error(failure: BaseException, run: str) -> StructableError | None:
    """Return the error of a task that is attached to the one that Spark raises; None if there is none.

    The text may hold data from anyone, which must not be unpickled: only the run's tasks know its random name.
    """
    found = re.search(f"{_CARRIED} {run} ([A-Za-z0-9+/=]+)", str(failure))
    if found is None:
        return None
    error = pickle.loads(base64.b64decode(found[1]))
    assert isinstance(error, StructableError)
    return error


@contextmanager
def quiet_when_abandoned() -> Iterator[None]:
    """End the Python process of a task that Spark has abandoned, such as after a limit, without a traceback.

    For a generator of a task's batches, around everything that it opens. Spark has closed its end of the connection and
    needs nothing more, but its process would log that it cannot write there.
    """
    try:
        yield
    except GeneratorExit as ended:
        # The process closes its generators while it handles the error of the write.
        if isinstance(ended.__context__, BrokenPipeError | ConnectionResetError) and TaskContext.get() is not None:
            os._exit(0)
        raise
