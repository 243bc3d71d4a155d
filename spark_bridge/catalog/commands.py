"""Carries out statements in a store; runs in the driver's process, with the coordinator's connections."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping

from pyspark.sql.types import StringType, StructField, StructType

from structable.spark_bridge.base.types import spark_schema, table_fields
from structable.spark_bridge.coordinator.stores import OpenStores
from structable.spark_bridge.coordinator.write_jobs import commit_with_retries
from structable.spark_bridge.read.pushdown import parse_filter
from structable.spi import (
    ChangelogProducer,
    Field,
    InvalidFieldError,
    Range,
    SchemaIncompatibleError,
    Storage,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSpecification,
    WriteMode,
)

from .requests import NOT_READ, ONLY_READ, CatalogRequest
from .table_properties import check_properties, properties_of, specification_of

_log = logging.getLogger("structable.spark")


class CatalogCommands:
    """Carries out requests of catalogs; safe to share between threads.

    An answer is the schema of the table after the command, or one of a single field. The metadata of its first field
    has the `outcome`: `done`, `absent` (no such table) or `exists` (a table to be made).
    """

    def __init__(self, stores: OpenStores) -> None:
        self._stores = stores
        self._commands: Mapping[str, Callable[[Storage, CatalogRequest], StructType]] = {
            "list": _list,
            "load": _load,
            "create": _create,
            "create_declared": _create_declared,
            "check_replace": _check_replace,
            "add_columns": _add_columns,
            "drop": _drop,
            "drop_empty": _drop_empty,
            "delete": _delete,
            "truncate": _truncate,
        }

    def run(self, request: CatalogRequest) -> StructType:
        with self._stores.using(request.store) as storage:
            return self._commands[request.command](storage, request)


def _list(storage: Storage, request: CatalogRequest) -> StructType:
    names = storage.admin.list()
    return _answer("done", **({"names": names} if names else {}))  # an empty array has no type


def _load(storage: Storage, request: CatalogRequest) -> StructType:
    try:
        spec = storage.admin.get_specification(request.table)
    except TableNotFoundError:
        return _answer("absent")
    return _described(spec)


def _create(storage: Storage, request: CatalogRequest) -> StructType:
    return _created(storage, specification_of(request.table, request.schema, dict(request.properties)))


def _create_declared(storage: Storage, request: CatalogRequest) -> StructType:
    return _created(storage, specification_of(request.table, request.schema, dict(request.properties), declared=True))


def _created(storage: Storage, spec: TableSpecification) -> StructType:
    try:
        storage.admin.create(spec)
    except TableAlreadyExistsError:
        return _answer("exists")
    return _described(spec)


def _check_replace(storage: Storage, request: CatalogRequest) -> StructType:
    spec = storage.admin.get_specification(request.table)
    check_properties(spec, dict(request.properties))
    return _described(spec)


def _add_columns(storage: Storage, request: CatalogRequest) -> StructType:
    try:
        spec = storage.admin.get_specification(request.table)
        while not _try_adding(storage, spec, table_fields(spec.name, request.schema, declared=True)):
            spec = storage.admin.get_specification(request.table)
    except TableNotFoundError:
        return _answer("absent")
    return _load(storage, request)


def _try_adding(storage: Storage, spec: TableSpecification, fields: Iterable[Field]) -> bool:
    """Add fields to a table; return False if it has changed since it had this specification."""
    for field in fields:
        if field.name in spec:
            raise InvalidFieldError(spec.name, field.name, "is a field already; nothing was added")
    try:
        storage.admin.create_or_update(spec.evolve(fields=[*spec.fields, *fields]))
    except SchemaIncompatibleError:
        if storage.admin.get_specification(spec.name) == spec:
            raise
        return False
    return True


def _drop(storage: Storage, request: CatalogRequest) -> StructType:
    there = storage.admin.exists(request.table)
    storage.admin.drop(request.table)
    return _answer("done" if there else "absent")


def _drop_empty(storage: Storage, request: CatalogRequest) -> StructType:
    """Drop a table that a failed statement made, unless it is another table by now, or there are rows in it.

    Rows may come from other writers, or from the statement itself, whose job was committed although Spark reports a
    failure, for example because the answer to the commit was lost.
    """
    made = specification_of(request.table, request.schema, dict(request.properties))
    try:
        if storage.admin.get_specification(request.table) != made:
            return _answer("done")
        with storage.table(request.table).scan(limit=1) as rows:
            empty = next(rows, None) is None
    except TableNotFoundError:
        return _answer("absent")
    if empty:
        storage.admin.drop(request.table)
    else:
        _log.warning("table %r was made by a statement that failed, and stays, for there are rows in it", request.table)
    return _answer("done")


def _delete(storage: Storage, request: CatalogRequest) -> StructType:
    where = parse_filter(storage.admin.get_specification(request.table), request.where)
    storage.table(request.table).delete_all(Range.all(), where)
    return _answer("done")


def _truncate(storage: Storage, request: CatalogRequest) -> StructType:
    spec = storage.admin.get_specification(request.table)
    if spec.keyless or spec.table_options.changelog_producer is not ChangelogProducer.NONE:
        storage.table(request.table).delete_all(Range.all())
    else:  # a job without rows, of which no store keeps a transaction's write set
        job = storage.begin_write(request.table, mode=WriteMode.OVERWRITE, job_id=f"truncate-{uuid.uuid4()}")
        commit_with_retries(storage, job, [])
    return _answer("done")


def _described(spec: TableSpecification) -> StructType:
    properties = properties_of(spec)
    schema = spark_schema(spec)
    first = schema.fields[0]
    metadata: dict[str, object] = {
        "outcome": "done",
        "names": list(properties),
        "values": list(properties.values()),
        "notRead": list(NOT_READ),
        "onlyRead": list(ONLY_READ),
    }
    if not spec.keyless:  # an empty array has no type
        metadata["key"] = list(spec.primary_key)
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *schema.fields[1:]])


def _answer(outcome: str, **told: object) -> StructType:
    return StructType([StructField("answer", StringType(), True, {"outcome": outcome, **told})])
