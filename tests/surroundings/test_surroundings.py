"""A program's results are the same whatever the state of its process is that all modules share."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent


class State(NamedTuple):
    """A state: Python's options, variables, and source that runs before anything else."""

    options: Sequence[str] = ()
    variables: dict[str, str] = {}
    source: str = ""


DECIMALS = """
import decimal
for context in (decimal.DefaultContext, decimal.getcontext()):
    context.prec, context.rounding, context.Emin, context.Emax = {}, {!r}, 0, 1
    context.capitals, context.clamp = 0, 1
    for signal in context.traps:
        context.traps[signal] = {}
"""
LIMITS = """
import csv, gc, os, resource, shutil, signal, socket, sys, tempfile, threading
csv.field_size_limit(1)
gc.set_threshold(1, 1, 1)
os.umask(0)
os.chdir(gone := tempfile.mkdtemp())
os.rmdir(gone)
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
socket.setdefaulttimeout(0)
sys.set_int_max_str_digits(640)
sys.setrecursionlimit(300)
sys.setswitchinterval(1e-6)
threading.stack_size(64 * 1024)
"""
HABITS = """
import locale, logging, multiprocessing, os, random, sys, time
import numpy
locale.setlocale(locale.LC_ALL, "")
logging.disable(logging.CRITICAL)
multiprocessing.set_start_method("spawn")
numpy.seterr(all="raise")
os.environ["TZ"] = "America/St_Johns"
time.tzset()
random.seed(1)
sys.stdin = sys.stderr = None
"""
STATES = {
    "few digits": State(source=DECIMALS.format(2, "ROUND_UP", False)),
    "decimal traps": State(source=DECIMALS.format(1, "ROUND_FLOOR", True)),
    "strict": State(["-W", "error", "-bb", "-X", "dev"]),
    "optimised": State(["-OO", "-X", "utf8=0"], {"PYTHONCOERCECLOCALE": "0", "PYTHONHASHSEED": "1", "LC_ALL": "C"}),
    "limits": State(source=LIMITS),
    "habits": State(source=HABITS),
}
GREENLETS = State(source="from gevent import monkey\nmonkey.patch_all()")
EVERYTHING = State(
    [option for state in STATES.values() for option in state.options],
    {name: value for state in STATES.values() for name, value in state.variables.items()},
    "".join(state.source for state in STATES.values()),
)


def run_in(state: State, url: str, folder: Path) -> str:
    """Return what the program prints in a state."""
    source = f"{state.source}\nfrom tests.surroundings.program import main\nmain({url!r}, {str(folder)!r})"
    done = subprocess.run(
        [sys.executable, *state.options, "-c", source],
        env={**os.environ, "PYTHONPATH": str(ROOT), **state.variables},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


@pytest.fixture
def turkish(tmp_path: Path) -> dict[str, str]:
    """Return the variables of a locale with other letters, numbers and names; it is C where none can be made."""
    made = ["localedef", "-i", "tr_TR", "-f", "UTF-8", str(tmp_path / "tr_TR.UTF-8")]
    if shutil.which(made[0]) and subprocess.run(made, capture_output=True, check=False).returncode == 0:
        return {"LOCPATH": str(tmp_path), "LC_ALL": "tr_TR.UTF-8"}
    return {"LC_ALL": "C"}


def test_results_do_not_depend_on_the_state_of_the_process(turkish: dict[str, str], tmp_path: Path) -> None:
    url = f"leveldb://{tmp_path}/store"
    expected = run_in(State(), url, tmp_path)
    for name, state in {**STATES, "greenlets": GREENLETS}.items():
        variables = {**turkish, **state.variables} if name == "habits" else state.variables
        assert run_in(state._replace(variables=variables), url, tmp_path) == expected, name


@pytest.mark.parametrize("store", ["postgresql", "hbase"])
def test_nor_do_those_of_servers(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    url = request.getfixturevalue(f"{store}_url")
    expected = run_in(State(), url, tmp_path)
    assert run_in(EVERYTHING, url, tmp_path) == expected
    assert run_in(GREENLETS, url, tmp_path) == expected
