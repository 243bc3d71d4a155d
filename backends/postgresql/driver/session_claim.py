"""`SessionClaim`: the proof of a connection that the server's session is its own.

A pooler that does not pool sessions runs each transaction of a client in any session of the server, among transactions
of other clients. Prepared statements are then missing, and settings and the session's state are another client's. No
pooler reports what it pools, so each connection claims the session in which it begins:

- It prepares a statement under a name that all connections use, which the server refuses in a session that has been
  claimed, before it has changed a setting. The claim is made in SQL: a pooler that renames prepared statements, so that
  they are found in every session, does not know this one, and refuses to run it.
- It keeps a random number in a setting, with the settings that it has made.

Behind a pooler, everything sent while no transaction is open begins with the claim's statement. It fails, together with
everything after it, unless the number and the settings are found. Nothing guards the statements of a transaction, which
each pooler leaves in its session. Other statements are prepared under names with the random number, so that a session
in which they are missing refuses them, even if the pooler went unnoticed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from .statement import TEXT, Call, Statement

_NAME = "structable_session"
_SETTING = "structable.session"
_CHANGED_LATER = "statement_timeout"
_BEGIN, _COMMIT = Call(Statement("begin")), Call(Statement("commit"))


class SessionClaim:
    """The claim of one connection, which makes `settings` and keeps them.

    `token` is unique to the connection for all time, and `suffix` ends the names of its prepared statements.
    `prepare` is the SQL that makes the claim, before the settings, and `mark` the expression that ends it after them.
    The calls of `guard` fail in another session. They are a transaction, so that the next one has yet to take its
    snapshot.
    """

    def __init__(self, settings: Iterable[str]) -> None:
        self.token = os.urandom(8)
        number = self.token.hex()
        self.suffix = f"_{number}".encode()
        kept = ["search_path", "synchronous_commit", *(name for name in settings if name != _CHANGED_LATER)]
        # Another client's session may find functions and operators of other users.
        values = ", ".join(f"pg_catalog.current_setting('{name}')" for name in dict.fromkeys(kept))
        marked = "pg_catalog.concat_ws(' ', {}, current_user, " + values + ")"
        self.prepare = (
            f"prepare {_NAME} (text) as select case when pg_catalog.current_setting('{_SETTING}', true) "
            f"operator(pg_catalog.=) {marked.format('$1')} then null "
            "else pg_catalog.current_setting('structable.the_session_is_of_another_client') end"
        )
        self.mark = f"set_config('{_SETTING}', {marked.format(repr(number))}, false)"
        statement = Statement(f"execute {_NAME}", (TEXT,))
        self.prepared = {statement.name: _NAME.encode()}
        """The statement of the claim, by the name that it has in the server."""
        self.guard = (_BEGIN, Call(statement, (number.encode(),)), _COMMIT)
