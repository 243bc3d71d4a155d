"""Without the package cryptography, all works but sealing, whose error says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_WITHOUT = """
import sys


class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "cryptography":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


assert "cryptography" not in sys.modules
sys.meta_path.insert(0, Without())

import structable.datasets
from structable.datasets import SecretError, SystemData
from structable.spi import connect
from tests.datasets.concurrency.support.invariants import violations
from tests.datasets.concurrency.support.keys import RotatingKeys
from tests.datasets.concurrency.support.ledger import LEDGER
from tests.datasets.concurrency.support.workloads import KEYLESS, work

storage = connect("memory://")
SystemData.create(storage)
storage.admin.create(LEDGER.specification)


def error_of(system, body):
    try:
        system.run(body)
    except SecretError as error:
        return str(error)
    raise AssertionError("nothing was raised")
"""


def run(program: str) -> None:
    """Run a program in a process where cryptography cannot be imported."""
    command = [sys.executable, "-W", "error", "-c", _WITHOUT + program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("keys", ["None", "RotatingKeys()"])
def test_what_seals_nothing_works(keys: str) -> None:
    run(f"""
with SystemData.open(storage, keys={keys}) as system:
    for workload in KEYLESS:
        done = work(system, workload, "seed", 20)
        assert any(not name.endswith("Error") for name in done), (workload, done)
        assert not any(name.endswith("SecretError") for name in done), (workload, done)
    assert violations(system) == []
    with system.transaction() as s:
        s.owners.set("default/a", "somebody")
        assert s.owners.keytab("default/a") is None
        assert s.secrets.get("default", "absent") is None
        assert s.secrets.page("default").items == s.credentials.page_profiles("default").items == []
""")


SEALING = {
    "secrets.put": "lambda s: s.secrets.put('default', 's', b'1')",
    "owners.set": "lambda s: s.owners.set('default/a', 'somebody', b'keytab')",
    "credentials.put_profile": "lambda s: s.credentials.put_profile('default', 'c', provisioner='p', data=b'1')",
}


@pytest.mark.parametrize("body", SEALING.values(), ids=SEALING)
def test_sealing_says_what_to_install(body: str) -> None:
    run(f"""
with SystemData.open(storage, keys=RotatingKeys()) as system:
    assert error_of(system, {body}).startswith("sealed values need cryptography; install what structable[secrets] ")
    counts = {{name: storage.table(name).count() for name in system.table_names}}
    assert {{name for name, count in counts.items() if count}} == {{"sys_namespaces"}}, "nothing was written"
with SystemData.open(storage) as system:
    assert error_of(system, {body}) == "sealed values need master keys: SystemData.open(..., keys=FileKeys(path))"
""")


def test_opening_and_rewrapping_say_what_to_install(tmp_path: Path) -> None:
    """The values were sealed by a process that has it."""
    url = f"leveldb://{tmp_path}/store"
    sealing = f"""
from structable.datasets import SystemData
from structable.spi import connect
from tests.datasets.support.keys import Keys
with connect({url!r}) as storage:
    SystemData.create(storage)
    with SystemData.open(storage, keys=Keys()) as system, system.transaction() as s:
        s.secrets.put("default", "s", b"1")
        s.owners.set("default/a", "somebody", b"keytab")
        s.credentials.put_profile("default", "c", provisioner="p", data=b"1")
        s.credentials.put_identity("default", "i", profile="default/c", data=b"1")
"""
    subprocess.run([sys.executable, "-c", sealing], cwd=ROOT, check=True)
    run(f"""
from tests.datasets.support.keys import Keys
keys = Keys()
keys.now = "k2"
with connect({url!r}) as storage, SystemData.open(storage, keys=keys) as system:
    for body in (
        lambda s: s.secrets.get("default", "s"),
        lambda s: s.secrets.rewrap(10),
        lambda s: s.owners.keytab("default/a"),
        lambda s: s.owners.rewrap(10),
        lambda s: s.credentials.profile_data("default", "c"),
        lambda s: s.credentials.identity_data("default", "i"),
        lambda s: s.credentials.rewrap(10),
    ):
        assert error_of(system, body).startswith("sealed values need cryptography; install what structable[secrets] ")
    with system.transaction() as s:
        assert s.secrets.describe("default", "s").version == 1
        assert s.owners.principal("default/a") == "somebody"
        s.secrets.delete("default", "s")
        s.credentials.delete_identity("default", "i")
        s.credentials.delete_profile("default", "c")
""")
