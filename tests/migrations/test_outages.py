"""A store that goes away while a runner fills a table: the fill goes on by itself, or once the store is there again."""

from __future__ import annotations

import threading

import pytest

from structable.migrations import Migrator, State, batches, part_filler
from structable.spi import StorageUnavailableError, connect
from tests.migrations.support.clocks import fast
from tests.migrations.support.folders import Scripts, put_runs
from tests.migrations.support.programs import UP, models_of, require_rows
from tests.postgresql.support.server import Server

ROWS = 400


@pytest.mark.long
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_server_that_stops(
    postgresql_server: Server, scripts: Scripts, monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """After a short outage the fill ends as if there had been none; after a long one `up` or `resume` goes on."""
    do_batch = batches.do_batch
    count, one_at_a_time = 0, threading.Lock()

    def stopping(*args: object, **options: object) -> object:
        nonlocal count
        with one_at_a_time:  # two threads fill
            count += 1
            if count == 3:
                postgresql_server.stop("immediate")
            elif count == 5 and comes_back:
                postgresql_server.start()
        return do_batch(*args, **{**options, "rows": 50})  # type: ignore[arg-type]

    with connect(postgresql_server.url("migrated"), pool_timeout=1) as storage:
        models = models_of(put_runs(storage, ROWS), 1)
        scripts.add("new", up=UP)
        migrator = Migrator(storage, scripts.path, monotonic=fast)
        with monkeypatch.context() as patch:
            patch.setattr(batches, "do_batch", stopping)
            if comes_back:
                migrator.up()
            else:
                patch.setattr(part_filler, "_UNAVAILABLE", 0.1)
                with pytest.raises(StorageUnavailableError):
                    migrator.up()
                postgresql_server.start()
                [stopped] = migrator.status()
                assert (stopped.state, stopped.resumes) in [
                    (State.FILLING, State.FILLING),
                    (State.PAUSED, State.FILLING),
                ]
                assert 0 < stopped.seen < 3 * ROWS
        migrator.resume()
        [status] = migrator.status()
        assert (status.state, status.seen) == (State.READY, 3 * ROWS)
        require_rows(storage, models, "attempts", "tries")
