"""Database folders that were open to other users, with links to files that structable must not write."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.spi import Field, StorageUnavailableError, StructableError, TableSpecification, connect

from .support.engines import open_engine
from .support.processes import SERVE, Process

CONTENT = b"a file of another user, of more than sixteen bytes"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "file").write_bytes(CONTENT)
    return folder


def _is_untouched(victim: Path) -> bool:
    return os.listdir(victim) == ["file"] and (victim / "file").read_bytes() == CONTENT


def _use(folder: Path) -> None:
    with connect(f"leveldb://{folder}", request_timeout=0.5) as storage:
        storage.admin.create_or_update(TableSpecification("t", [Field.long("k")], ["k"]))
        storage.table("t").upsert({"k": 1})


def _refusal(folder: Path) -> str:
    try:
        _use(folder)
    except StorageUnavailableError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("mode", [0o700, 0o777])
@pytest.mark.parametrize("name", ["lock", "owner", "epoch", "socket", "clean", "owner.PID"])
@pytest.mark.parametrize("before", ["nothing", "a database"])
def test_nothing_is_written_through_a_file_that_is_a_link(
    folder: Path, victim: Path, name: str, mode: int, before: str
) -> None:
    name = name.replace("PID", str(os.getpid()))
    if before == "nothing":
        (folder / "database").mkdir(parents=True)
    else:
        _use(folder)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim / "file")
    folder.chmod(mode)
    refused = _refusal(folder)
    assert refused == "" or f"{name} is a symbolic link" in refused
    assert _is_untouched(victim)
    assert stat.S_IMODE((victim / "file").stat().st_mode) & 0o077 == 0o044
    assert not folder.stat().st_mode & 0o022, "the folder was closed to others"
    if refused:
        (folder / name).unlink()
        _use(folder)


@pytest.mark.parametrize("mode", [0o700, 0o777])
@pytest.mark.parametrize("name", ["database", "staging", "checkpoints"])
def test_folder_that_is_a_link_is_refused(folder: Path, victim: Path, name: str, mode: int) -> None:
    (folder / "database").mkdir(parents=True)
    if name == "database":
        (folder / name).rmdir()
    (folder / name).symlink_to(victim)
    folder.chmod(mode)
    with pytest.raises(StorageUnavailableError, match=f"{name} is a symbolic link"):
        _use(folder)
    assert _is_untouched(victim)


@pytest.mark.parametrize(
    "name", ["database/CURRENT", "database/LOG", "database/000003.log", "staging/x", "checkpoints/y"]
)
def test_link_in_a_part_is_refused(folder: Path, victim: Path, name: str) -> None:
    for part in ("database", "staging", "checkpoints"):
        (folder / part).mkdir(parents=True, mode=0o777)
    (folder / name).symlink_to(victim / "file")
    with pytest.raises(StorageUnavailableError, match=f"{name} is a symbolic link"):
        _use(folder)
    assert _is_untouched(victim)


def test_link_deep_in_an_open_folder_is_refused(folder: Path, victim: Path) -> None:
    _use(folder)
    (folder / "staging" / "job").mkdir()
    (folder / "staging" / "job" / "job").symlink_to(victim / "file")
    folder.chmod(0o777)
    with pytest.raises(StorageUnavailableError, match="staging/job/job is a symbolic link"):
        _use(folder)
    assert _is_untouched(victim)


@pytest.mark.parametrize("name", ["lock", "epoch"])
def test_hard_link_is_refused(folder: Path, victim: Path, name: str) -> None:
    (folder / "database").mkdir(parents=True)
    os.link(victim / "file", folder / name)
    with pytest.raises(StorageUnavailableError, match=f"{name} is a hard link"):
        _use(folder)
    assert _is_untouched(victim)


@pytest.mark.parametrize("name", ["lock", "owner", "epoch", "clean"])
def test_pipe_instead_of_a_file_blocks_no_process(folder: Path, name: str) -> None:
    (folder / "database").mkdir(parents=True)
    os.mkfifo(folder / name)
    refused = _refusal(folder)
    assert refused == "" or f"{name} is not a regular file" in refused


@pytest.mark.parametrize(
    "name", ["CURRENT", "LOG", "LOCK", "MANIFEST-000002", "000003.log", "000005.ldb", "unsynced", "compression"]
)
@pytest.mark.parametrize("options", [{}, {"create": False}, {"read_only": True}], ids=["any", "there", "read only"])
def test_pipe_among_the_files_of_leveldb_is_refused(folder: Path, name: str, options: dict[str, bool]) -> None:
    _use(folder)
    (folder / "database" / name).unlink(missing_ok=True)
    if name == "CURRENT":
        (folder / "clean").unlink()
    os.mkfifo(folder / "database" / name)
    with pytest.raises(StorageUnavailableError, match=f"{name} is not a regular file; remove it"):
        connect(f"leveldb://{folder}", **options).close()


def test_owner_file_of_a_stranger_removes_nothing(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "structable-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(elsewhere / "socket"))
        (folder / "database").mkdir(parents=True)
        (folder / "owner").write_text(json.dumps({"socket": str(elsewhere / "socket"), "process": 1}))
        _use(folder)
    assert (elsewhere / "kept").exists()


@pytest.mark.parametrize("content", ["", "[", "{}", "[" * 100_000, '{"socket": 1, "process": []}', "\x00\xff"])
def test_owner_file_that_is_none_is_replaced(folder: Path, content: str) -> None:
    (folder / "database").mkdir(parents=True)
    (folder / "owner").write_text(content)
    _use(folder)


def test_open_folders_are_closed_to_others(folder: Path) -> None:
    _use(folder)
    for part in (folder, folder / "database", folder / "staging", folder / "checkpoints"):
        part.chmod(0o777)
    _use(folder)
    for part in (folder, folder / "database", folder / "staging", folder / "checkpoints"):
        assert not part.stat().st_mode & 0o022


def test_folder_for_all_users_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(StorageUnavailableError, match="a folder for all users"):
        _use(folder)
    assert os.listdir(folder) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    _use(folder / "mine")


def test_folder_of_something_else_keeps_its_mode(folder: Path) -> None:
    folder.mkdir()
    (folder / "notes").touch()
    folder.chmod(0o777)
    with pytest.raises(StructableError, match="holds other files"):
        _use(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777


def test_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _use(folder)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 4711)
    with pytest.raises(StorageUnavailableError, match=f"belongs to user {os.getuid()}, this process to user"):
        _use(folder)


def test_files_are_open_to_their_user_alone(folder: Path, run: Callable[[str], Process]) -> None:
    old = os.umask(0)
    try:
        process = run(SERVE)
        assert process.receive() == "ready"
        engine = open_engine(folder)
        modes = {name: stat.S_IMODE((folder / name).lstat().st_mode) for name in os.listdir(folder)}
        engine.close()
    finally:
        os.umask(old)
    assert modes.pop("database") == modes.pop("staging") == modes.pop("checkpoints") == 0o700
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.parametrize(
    "option",
    ["request_timeout=inf", "request_timeout=nan", "request_timeout=1e300", "ddl_timeout=inf", "ddl_timeout=nan",
     f"block_cache={1 << 70}", f"write_buffer={1 << 64}", f"open_files={1 << 31}", "block_cache=inf", "open_files=-1"],
)  # fmt: skip
def test_value_that_no_machine_can_use_is_refused(folder: Path, option: str) -> None:
    name = option.partition("=")[0]
    with pytest.raises(ValueError, match=f"option '{name}' is"):
        connect(f"leveldb://{folder}?{option}")
    assert not folder.exists()


@pytest.mark.parametrize("seconds", [2e6, 1e12, 1e300, float("inf")])
def test_long_time_out_waits_long(folder: Path, run: Callable[[str], Process], seconds: float) -> None:
    assert run(SERVE).receive() == "ready"
    engine = open_engine(folder, request_timeout=seconds)
    assert engine.get(b"none of the keys") is None
    engine.close()
    engine = open_engine(folder / "other", request_timeout=seconds)
    engine.close()
