"""Questions of the driver's JVM to the coordinator, for which Spark would start a Python process otherwise."""

from __future__ import annotations

import contextlib
import json
import pickle
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructField, StructType

from .base.errors import CONTRACT_ERRORS
from .coordinator.channel import MOST_BYTES, Channel
from .coordinator.client import CoordinatorClient
from .read.reader import ReadPartition
from .source import answered_schema, batch_reader


@dataclass(frozen=True, slots=True)
class _LocalClient(CoordinatorClient):
    """Reaches the coordinator within its process; a pickle of it reaches the coordinator from other processes."""

    operations: Mapping[str, Callable[..., object]] = field(default_factory=dict, repr=False)

    def _ask(self, operation: str, *arguments: object) -> object:
        return self.operations[operation](*arguments)

    def __reduce__(self) -> tuple[type[CoordinatorClient], tuple[object, ...]]:
        return CoordinatorClient, (self.planners, self.readers, self.secret)


class DriverQuestions:
    """Answers questions in JSON: a `question`, with the `names` and `values` of a data source's options.

    `schema` asks for the data source's schema, and `plan` for the function that reads a `schema` and its partitions, as
    pickles. An answer is the number of its messages, and then the messages: an error or nothing, then the results.
    """

    def __init__(self, client: CoordinatorClient, operations: Mapping[str, Callable[..., object]]) -> None:
        self._coordinator = _LocalClient(client.planners, client.readers, client.secret, operations)

    def serve(self, channel: Channel) -> None:
        """Answer the question that comes over a channel."""
        try:
            asked = json.loads(channel.recv_bytes(MOST_BYTES))
        except (EOFError, OSError):
            return  # the client ended before it asked
        try:
            messages = [b"", *self._answered(asked)]
        except Exception as error:  # the client raises it
            messages = [_shown(error).encode()]
        with contextlib.suppress(OSError):  # the client ended; its plan expires with the lease
            for message in (str(len(messages)).encode(), *messages):
                channel.send_bytes(message)

    def _answered(self, asked: Mapping[str, Any]) -> list[bytes]:
        options = CaseInsensitiveDict(zip(asked["names"], asked["values"], strict=True))
        if asked["question"] == "schema":
            return [answered_schema(self._coordinator, options).json().encode()]
        schema = StructType.fromJson(json.loads(asked["schema"]))
        reader = batch_reader(self._coordinator, options, schema)
        partitions = reader.planned()
        plain = StructType([StructField(field.name, field.dataType, field.nullable) for field in schema.fields])
        return [pickle.dumps((ReadPartition(reader), plain)), *map(pickle.dumps, partitions)]


def _shown(error: Exception) -> str:
    """Return an error as a Python process of Spark's reports it."""
    expected = isinstance(error, CONTRACT_ERRORS)
    return "".join((traceback.format_exception_only if expected else traceback.format_exception)(error))
