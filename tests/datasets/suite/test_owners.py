"""The dataset `owners`."""

from __future__ import annotations

import pytest

from structable.datasets import AlreadyExistsError, NotFoundError, SecretError, SystemData
from structable.spi import Storage
from tests.datasets.conftest import Begin
from tests.datasets.support.keys import Keys, tampered

KEYTAB = b"very private"


@pytest.fixture
def system(shared_store: Storage, system: SystemData, keys: Keys) -> SystemData:
    """Return the datasets with master keys."""
    return SystemData.open(shared_store, keys=keys)


class TestOwners:
    def test_owner_and_keytab_are_read_back(self, begin: Begin) -> None:
        with begin() as s:
            s.owners.set("ns/app", "alice", KEYTAB)
            s.owners.set("ns", "bob")
            with pytest.raises(AlreadyExistsError):
                s.owners.set("ns", "carol")
        with begin() as s:
            assert (s.owners.principal("ns/app"), s.owners.keytab("ns/app")) == ("alice", KEYTAB)
            assert (s.owners.principal("ns"), s.owners.keytab("ns")) == ("bob", None)
            assert s.owners.principal("absent") is None
            with pytest.raises(NotFoundError):
                s.owners.keytab("absent")

    def test_nearest_ancestor_is_effective(self, begin: Begin) -> None:
        with begin() as s:
            s.owners.set("ns", "bob")
            s.owners.set("ns/app", "alice")
            for entity, principal in (("ns/app/x/y", "alice"), ("ns/app", "alice"), ("ns/apple", "bob")):
                found = s.owners.effective(entity)
                assert found is not None
                assert found.principal == principal
            assert s.owners.effective("other/app") is None
            s.owners.delete("ns/app")
            found = s.owners.effective("ns/app/x")
            assert found is not None
            assert found.entity == "ns"
            with pytest.raises(NotFoundError):
                s.owners.delete("ns/app")

    @pytest.mark.parametrize("entity", ["", "/ns", "ns/", "ns//x"])
    def test_bad_entity_is_refused(self, begin: Begin, entity: str) -> None:
        with begin() as s, pytest.raises(ValueError, match="entity"):
            s.owners.set(entity, "alice")

    @pytest.mark.parametrize("field", ["key_id", "wrapped", "nonce", "keytab"])
    def test_tampered_row_does_not_open(self, begin: Begin, field: str) -> None:
        with begin() as s:
            s.owners.set("ns", "alice", KEYTAB)
            tampered(s, "sys_owners", {"entity": "ns"}, field)
        with begin() as s, pytest.raises(SecretError):
            s.owners.keytab("ns")

    def test_rewrap_skips_owners_without_keytab(self, begin: Begin, keys: Keys) -> None:
        with begin() as s:
            s.owners.set("a", "alice", KEYTAB)
            s.owners.set("b", "bob")
        keys.now = "k2"
        with begin() as s:
            assert s.owners.rewrap(5) == 1
            assert s.owners.rewrap(5) == 0
        del keys.keys["k1"]
        with begin() as s:
            assert s.owners.keytab("a") == KEYTAB

    def test_no_provider(self, begin: Begin, shared_store: Storage) -> None:
        with SystemData.open(shared_store).transaction() as s:
            s.owners.set("a", "alice")
            with pytest.raises(SecretError):
                s.owners.set("b", "bob", KEYTAB)
            assert s.owners.principal("b") is None
