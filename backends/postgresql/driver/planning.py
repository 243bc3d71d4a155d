"""How the server plans statements: in a transaction by one index, unless a statement asks to be planned freely.

The plan of a prepared statement is kept, and one made while a table was small would read all of it ever after. Where
only an index is allowed, and joins only row by row, the plan is right for a table of any size.
"""

from __future__ import annotations

from collections.abc import Sequence

from .statement import Call, Statement

__all__ = ["BY_INDEX", "CURRENT", "PLAN_BY_INDEX", "plan_freely"]

_BY_INDEX = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
CURRENT = f"array[{', '.join(f'current_setting({name!r})' for name in _BY_INDEX)}]"
"""The settings of a session, as an SQL expression."""


def _settings(values: Sequence[str]) -> str:
    return ", ".join(f"set_config('{name}', '{value}', true)" for name, value in zip(_BY_INDEX, values, strict=True))


BY_INDEX = _settings([*_BY_INDEX.values()])
"""Lets only indexes be used until the end of the transaction, as SQL expressions."""
PLAN_BY_INDEX = Call(Statement(f"select {BY_INDEX}"))


def plan_freely(values: Sequence[str]) -> Call:
    """Return the call that sets the session's own settings in a transaction; the next is `PLAN_BY_INDEX`."""
    return Call(Statement(f"select {_settings(values)}"))
