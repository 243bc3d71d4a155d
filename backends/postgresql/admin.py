"""`PostgreSQLAdmin`: creation, change and removal of tables, each in one transaction of the server's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.schema import CreateTable

from structable.spi import (
    InvalidSpecificationError,
    StorageUnavailableError,
    StructableError,
    TableAdmin,
    TableAlreadyExistsError,
    TableNotFoundError,
    TableSpecification,
)

from .binding import TableBinding, TableVersion
from .catalog import Ask, Catalog, encode_specification
from .failures import ConnectionLostError, ServerError, translated
from .names import CATALOG, column_name, index_name, qualified, quoted, token_name
from .pool import SessionPool
from .session import Call, Session, Statement, command

__all__ = ["PostgreSQLAdmin", "index_definition", "token_definition"]

Result = TypeVar("Result")
_TEXT = 25
_BIGINT = 20


def token_definition(schema: str, table: TableVersion) -> str:
    """Return the command that makes the function that stands for a version of a table."""
    name = qualified(schema, token_name(table.id, table.version))
    return f"create function {name}() returns boolean language sql immutable parallel safe as 'select true'"


def index_definition(binding: TableBinding, field: str, *, concurrently: bool = False) -> str:
    """Return the command that makes the index of a field, which also has the order of its rows."""
    name = quoted(index_name(binding.version.id, field))
    key = ", ".join(quoted(column_name(one)) for one in binding.spec.primary_key)
    how = "concurrently " if concurrently else ""
    return f"create index {how}{name} on {binding.qualified} ({quoted(column_name(field))} nulls first, {key})"


class PostgreSQLAdmin(TableAdmin):
    """The tables of a schema.

    Parameters
    ----------
    pool : SessionPool
        Where connections come from.
    catalog : Catalog
        The tables.
    ddl_timeout : float
        Seconds to wait for open transactions.
    """

    def __init__(self, pool: SessionPool, catalog: Catalog, ddl_timeout: float) -> None:
        self._pool = pool
        self._catalog = catalog
        self._ddl_timeout = ddl_timeout
        self._table = qualified(catalog.schema, CATALOG)

    def create(self, spec: TableSpecification) -> None:
        """See `TableAdmin.create`."""

        def body(session: Session, ask: Ask) -> None:
            found = self._catalog.find(ask, spec.name, any_case=True)
            if found is not None:
                if found.spec.name == spec.name:
                    raise TableAlreadyExistsError(spec.name)
                raise _differs_by_case(spec.name, found.spec.name)
            self._make(session, ask, spec)

        self._change(spec.name, body)

    def _make(self, session: Session, ask: Ask, spec: TableSpecification) -> None:
        specification, building = encode_specification(TableVersion(0, 1, spec))
        insert = Statement(
            f"insert into {self._table} (name, folded, version, specification, building) "
            "values ($1, lower($1), 1, $2, $3) returning id",
            (_TEXT, _TEXT, _TEXT),
        )
        made = ask(Call(insert, (spec.name.encode(), specification.encode(), building.encode())))
        table = TableVersion(int(str(made[0][0])), 1, spec)
        binding = TableBinding(self._catalog.schema, table)
        key = ", ".join(quoted(column_name(name)) for name in spec.primary_key)
        text = str(CreateTable(binding.core).compile(dialect=_DIALECT)).strip()
        primary = f", constraint {quoted(f'_k{table.id:x}')} primary key ({key}))"
        session.pipeline(
            [
                command(text.removesuffix(")").rstrip() + primary),
                command(token_definition(self._catalog.schema, table)),
                *(command(index_definition(binding, field)) for field in spec.indexes),
            ]
        )

    def create_or_update(self, spec: TableSpecification) -> None:
        """See `TableAdmin.create_or_update`."""
        raise NotImplementedError

    def exists(self, table: str) -> bool:
        """See `TableAdmin.exists`."""
        return self._read(lambda ask: self._catalog.find(ask, table)) is not None

    def get_specification(self, table: str) -> TableSpecification:
        """See `TableAdmin.get_specification`."""
        found = self._read(lambda ask: self._catalog.find(ask, table))
        if found is None:
            raise TableNotFoundError(table)
        return found.spec

    def list(self) -> list[str]:
        """See `TableAdmin.list`."""
        return self._read(self._catalog.names)

    def drop(self, table: str) -> None:
        """See `TableAdmin.drop`."""

        def body(session: Session, ask: Ask) -> None:
            found = self._catalog.find(ask, table)
            if found is None:
                return
            delete = Call(Statement(f"delete from {self._table} where name = $1", (_TEXT,)), (table.encode(),))
            token = qualified(self._catalog.schema, token_name(found.id, found.version))
            session.pipeline(
                [
                    command(f"drop table if exists {qualified(self._catalog.schema, table)}"),
                    command(f"drop function if exists {token}()"),
                    delete,
                ]
            )

        self._change(table, body)

    def drop_index(self, table: str, field: str) -> None:
        """See `TableAdmin.drop_index`."""
        raise NotImplementedError

    # How

    def _read(self, body: Callable[[Ask], Result]) -> Result:
        with self._pool.session() as session:
            try:
                return body(lambda call: session.rows(session.run(call)))
            except (ServerError, ConnectionLostError) as error:
                raise translated(error, "reading the catalog") from error

    def _change(self, table: object, body: Callable[[Session, Ask], Result]) -> Result:
        """Run a transaction of changes; one at a time in the schema."""
        if isinstance(table, str):
            self._catalog.forget(table)
        milliseconds = max(1, round(self._ddl_timeout * 1_000))
        lock = qualified(self._catalog.schema, CATALOG)
        with self._pool.session() as session:
            try:
                session.pipeline(
                    [
                        command("begin"),
                        command(f"set local lock_timeout = {milliseconds}"),
                        command(f"lock table {lock} in share row exclusive mode"),
                    ]
                )
                result = body(session, lambda call: session.rows(session.run(call)))
                session.pipeline((command("commit"),))
            except (ServerError, ConnectionLostError) as error:
                _roll_back(session)
                if isinstance(error, ServerError) and error.state == _LOCK_NOT_AVAILABLE:
                    raise StorageUnavailableError(
                        f"table {table!r} is in use by open transactions; waited {self._ddl_timeout:g} s "
                        "(ddl_timeout), and nothing was changed"
                    ) from error
                raise translated(error, f"changing table {table!r}") from error
            except BaseException:
                _roll_back(session)
                raise
        if isinstance(table, str):
            self._catalog.forget(table)
        return result


_DIALECT = PGDialect(paramstyle="named")  # which leaves a % in a name as it is
_LOCK_NOT_AVAILABLE = "55P03"


def _roll_back(session: Session) -> None:
    if not session.closed:
        with suppress(ServerError, ConnectionLostError):
            session.pipeline((command("rollback"),))


def _differs_by_case(wanted: str, there: str) -> StructableError:
    return InvalidSpecificationError(f"table {wanted!r} differs from the existing table {there!r} by case alone")
