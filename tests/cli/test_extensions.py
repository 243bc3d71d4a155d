"""Commands of other packages: real distributions in a folder of sys.path."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from structable.spi import connect
from tests.cli.conftest import Command
from tests.cli.support.samples import RUNS

Install = Callable[..., None]

APPLICATION = """
import typer
from structable.spi import connect

app = typer.Typer(help="Orders of the shop.")

@app.callback()
def program() -> None: ...

@app.command()
def total(url: str, table: str) -> None:
    "Count the orders."
    with connect(url, create=False) as storage:
        print(storage.table(table).count())
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a distribution into a folder of sys.path, with one module and its entry points."""

    def add(name: str, code: str, **entries: str) -> None:
        place = tmp_path / name
        metadata = place / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = "".join(f"{key} = {value}\n" for key, value in entries.items())
        (metadata / "entry_points.txt").write_text(f"[structable.commands]\n{lines}")
        (place / f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(place)
        # The module is another one in each test.
        monkeypatch.delitem(sys.modules, name, raising=False)

    return add


def test_command_of_another_package(structable: Command, install: Install, tmp_path: Path) -> None:
    install("shop_commands", APPLICATION, orders="shop_commands:app")
    url = f"leveldb://{tmp_path}/store"
    with connect(url) as storage:
        storage.admin.create(RUNS)
    assert structable("orders", "total", url, RUNS.name) == (0, "0\n", "")
    shown = structable("--help")
    assert shown.code == 0
    assert "Orders of the shop." in shown.out
    assert "Count the orders." in structable("orders", "--help").out
    assert "completion" not in structable("orders", "--help").out


def test_errors_end_it_as_they_end_others(structable: Command, install: Install, tmp_path: Path) -> None:
    install("shop_commands", APPLICATION, orders="shop_commands:app")
    absent = structable("orders", "total", f"leveldb://{tmp_path}/absent", "runs")
    assert (absent.code, absent.out) == (3, "")
    assert absent.err.startswith("structable: ")
    assert absent.err.count("\n") == 1
    misused = structable("orders", "total")
    assert misused.code == 2
    assert "'structable orders total --help' shows the usage" in misused.err


def test_it_is_loaded_when_it_is_run(structable: Command, install: Install) -> None:
    install("shop_commands", "raise RuntimeError('not yet')", orders="shop_commands:app")
    assert structable("backends").code == 0
    failed = structable("orders", "total", "--limit", "5")
    reason = "the command 'orders' of shop_commands 1.0 cannot be loaded: not yet"
    assert failed == (1, "", f"structable: {reason}\n")
    shown = structable("--help")
    assert shown.code == 0
    assert "Not usable" in shown.out
    assert "backends" in shown.out


@pytest.mark.parametrize(
    ("code", "value", "reason"),
    [
        ("", "shop_commands:app", "has no attribute 'app'"),
        ("app = 5", "shop_commands:app", "is not a Typer application"),
        ("import a_module_that_is_absent", "shop_commands:app", "No module named 'a_module_that_is_absent'"),
    ],
)
def test_what_is_no_command(structable: Command, install: Install, code: str, value: str, reason: str) -> None:
    install("shop_commands", code, orders=value)
    failed = structable("orders")
    assert (failed.code, failed.out) == (1, "")
    assert reason in failed.err


def test_two_packages_of_one_name(structable: Command, install: Install) -> None:
    install("shop_commands", APPLICATION, orders="shop_commands:app")
    install("other_commands", APPLICATION, orders="other_commands:app")
    failed = structable("orders", "total")
    assert failed.code == 1
    assert "comes with other_commands 1.0 and shop_commands 1.0; uninstall one of them" in failed.err


def test_own_commands_cannot_be_replaced(structable: Command, install: Install) -> None:
    install("shop_commands", "raise RuntimeError('never loaded')", tables="shop_commands:app")
    assert "never loaded" not in structable("tables", "--help").out
    assert structable("tables", "memory://absent").err != ""
    assert structable("--help").out.count("│ tables ") <= 1


def test_unknown_command_is_still_one(structable: Command) -> None:
    unknown = structable("no-such-command")
    assert unknown.code == 2
    assert "no-such-command" in unknown.err
