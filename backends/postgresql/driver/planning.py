"""Settings for the planning of statements: by one index, unless a statement or a transaction is planned freely.

The plan of a prepared statement is kept, and a plan made while a table was small would always read all of it. If only
an index is allowed, also for the order of rows, and only joins row by row, the plan is right for a table of any size.
So a connection begins with these settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .connection import ServerConnection
from .statement import Call, Statement

_BY_INDEX = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "enable_sort": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}


def _settings(values: Iterable[str], *, local: bool) -> str:
    changes = zip(_BY_INDEX, values, strict=True)
    return ", ".join(f"set_config('{name}', '{value}', {str(local).lower()})" for name, value in changes)


CURRENT = f"array[{', '.join(f'current_setting({name!r})' for name in _BY_INDEX)}]"
"""The settings of a session, as an SQL expression."""
BY_INDEX = f"select {_settings(_BY_INDEX.values(), local=False)}"
"""The SQL that lets a session use only indexes."""
_PLAN_BY_INDEX = Call(Statement(f"select {_settings(_BY_INDEX.values(), local=True)}"))
"""The SQL that lets a transaction use only indexes again, after `plan_freely`."""


def plan_freely(values: Sequence[str]) -> Call:
    """Return the call that gives a transaction the original settings of its session."""
    return Call(Statement(f"select {_settings(values, local=True)}"))


def with_plans(connection: ServerConnection, calls: Iterable[Call]) -> list[Call]:
    """Return calls with the settings around each call that the server plans freely."""
    found: list[Call] = []
    for call in calls:
        found += (connection.plan_freely, call, _PLAN_BY_INDEX) if call.statement.is_planned_freely else (call,)
    return found
