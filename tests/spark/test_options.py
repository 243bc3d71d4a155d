from collections.abc import Mapping
from pathlib import Path

import pytest

from structable.spark_bridge.base.options import ReadOptions, WriteOptions
from structable.spark_bridge.base.store_client import StoreClient
from structable.spi import StoreNotFoundError, WriteMode

PLACE = {"url": "leveldb:///tables", "table": "runs"}


def test_reading_takes_everything_from_its_options() -> None:
    options = ReadOptions.parse(
        {
            **PLACE,
            "columns": "app, cost",
            "splits": "7",
            "leaseseconds": "2.5",
            "graceseconds": "1",
            "durability": "process",
        }
    )
    store = StoreClient("leveldb:///tables", (("durability", "process"),))
    assert options == ReadOptions(store, "runs", ("app", "cost"), 7, 2.5, 1.0)


def test_reading_has_defaults() -> None:
    assert ReadOptions.parse(PLACE) == ReadOptions(StoreClient("leveldb:///tables"), "runs", None, None, 600.0, 2.0)


def test_writing_takes_everything_from_its_options() -> None:
    options = WriteOptions.parse({**PLACE, "mode": "INSERT", "jobid": "nightly"}, overwrite=False)
    assert options == WriteOptions(StoreClient("leveldb:///tables"), "runs", WriteMode.INSERT, "nightly")


@pytest.mark.parametrize(
    ("mode", "overwrite", "expected"),
    [
        (None, False, WriteMode.UPSERT),
        (None, True, WriteMode.OVERWRITE),
        ("overwrite", True, WriteMode.OVERWRITE),
        ("overwrite", False, WriteMode.OVERWRITE),
        ("delete", False, WriteMode.DELETE),
    ],
)
def test_the_write_mode_follows_option_and_save_mode(mode: str | None, overwrite: bool, expected: WriteMode) -> None:
    given = PLACE if mode is None else {**PLACE, "mode": mode}
    assert WriteOptions.parse(given, overwrite=overwrite).mode is expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "runs"}, "the option url is missing"),
        ({"url": "leveldb:///tables"}, "the option table is missing"),
        ({**PLACE, "table": ""}, "the option table is missing"),
        ({**PLACE, "path": "/x"}, "structable tables have no path"),
        ({**PLACE, "columns": "app,,cost"}, "the option columns is 'app,,cost'"),
        ({**PLACE, "columns": "app, app"}, "names 'app' twice"),
        ({**PLACE, "splits": "0"}, "the option splits is '0'"),
        ({**PLACE, "splits": "two"}, "the option splits is 'two'"),
        ({**PLACE, "leaseseconds": "-1"}, "the option leaseSeconds is '-1'"),
        ({**PLACE, "leaseseconds": "nan"}, "the option leaseSeconds is 'nan'"),
        ({**PLACE, "leaseseconds": "soon"}, "the option leaseSeconds is 'soon'"),
        ({**PLACE, "graceseconds": "0"}, "the option graceSeconds is '0'"),
        ({**PLACE, "mode": "upsert"}, "the option mode is not for reading"),
        ({**PLACE, "jobid": "x"}, "the option jobId is not for reading"),
    ],
)
def test_a_wrong_option_of_a_read_is_named(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReadOptions.parse(options)


@pytest.mark.parametrize(
    ("options", "overwrite", "message"),
    [
        ({**PLACE, "mode": "merge"}, False, "allowed are upsert, insert, replace, update, delete, overwrite"),
        ({**PLACE, "mode": "upsert"}, True, "the option mode is 'upsert' and the save mode is overwrite"),
        ({**PLACE, "jobid": ""}, False, "the option jobId is empty"),
        ({**PLACE, "columns": "app"}, False, "the option columns is not for writing"),
    ],
)
def test_a_wrong_option_of_a_write_is_named(options: Mapping[str, str], overwrite: bool, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WriteOptions.parse(options, overwrite=overwrite)


def test_an_unknown_option_is_refused_with_all_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no option 'colour'; it knows .*pool_timeout.*; the format itself takes url"):
        StoreClient("memory://", (("colour", "red"),)).connect()


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    url = f"leveldb://{tmp_path}/mistyped"
    with pytest.raises(StoreNotFoundError, match="mistyped does not exist; Spark creates no stores"):
        StoreClient(url).connect()
    assert not (tmp_path / "mistyped").exists()
    StoreClient(f"{url}?create=true").connect().close()
    StoreClient(url).connect().close()


def test_an_address_shows_no_password() -> None:
    address = StoreClient("postgresql://me:hidden@host/db", (("password", "hidden"),))
    assert "hidden" not in f"{address} {address!r}"
