"""The dataset `credentials`."""

from __future__ import annotations

import pytest

from structable.datasets import InUseError, NotFoundError, SecretError, SystemData
from structable.spi import Storage, TransactionConflictError
from tests.datasets.conftest import Begin
from tests.datasets.support.keys import Keys, tampered

DATA = b"very private"


@pytest.fixture
def system(shared_store: Storage, system: SystemData, keys: Keys) -> SystemData:
    """Return the datasets with master keys, and a profile with an identity."""
    system = SystemData.open(shared_store, keys=keys)
    with system.transaction() as s:
        s.credentials.put_profile("default", "p", provisioner="cloud", data=DATA, description="d")
        s.credentials.put_identity("default", "i", profile="default/p", data=b"identity")
    return system


class TestCredentials:
    def test_data_are_read_back(self, begin: Begin) -> None:
        with begin() as s:
            assert s.credentials.profile_data("default", "p") == DATA
            assert s.credentials.identity_data("default", "i") == b"identity"
            profile = s.credentials.get_profile("default", "p")
            assert profile is not None
            assert (profile.provisioner, profile.description) == ("cloud", "d")
            assert "cloud" not in repr(profile)
            assert [one.profile for one in s.credentials.page_profiles("default").items] == ["p"]
            assert [one.profile for one in s.credentials.page_identities("default").items] == ["default/p"]

    def test_absent_ones(self, begin: Begin) -> None:
        with begin() as s:
            assert s.credentials.get_profile("default", "x") is None
            assert s.credentials.get_identity("default", "x") is None
            with pytest.raises(NotFoundError):
                s.credentials.profile_data("default", "x")
            with pytest.raises(NotFoundError):
                s.credentials.delete_profile("default", "x")
            with pytest.raises(NotFoundError):
                s.credentials.delete_identity("default", "x")
            with pytest.raises(NotFoundError):
                s.credentials.put_identity("default", "x", profile="default/x", data=DATA)
            with pytest.raises(NotFoundError):
                s.credentials.put_profile("absent", "x", provisioner="cloud", data=DATA)

    def test_profile_in_use_is_not_deleted(self, begin: Begin) -> None:
        with begin() as s:
            with pytest.raises(InUseError, match="default/i"):
                s.credentials.delete_profile("default", "p")
            s.credentials.delete_identity("default", "i")
            s.credentials.delete_profile("default", "p")
            assert s.credentials.get_profile("default", "p") is None

    def test_new_identity_conflicts_with_the_deletion_of_its_profile(self, begin: Begin) -> None:
        def overlap() -> None:
            with begin() as s:
                s.credentials.delete_identity("default", "i")
                with begin() as other:
                    other.credentials.put_identity("default", "new", profile="default/p", data=DATA)
                s.credentials.delete_profile("default", "p")

        with pytest.raises(TransactionConflictError):
            overlap()

    @pytest.mark.parametrize("field", ["key_id", "wrapped", "nonce", "data"])
    def test_tampered_rows_do_not_open(self, begin: Begin, field: str) -> None:
        with begin() as s:
            tampered(s, "sys_credential_profiles", {"namespace": "default", "profile": "p"}, field)
            tampered(s, "sys_credential_identities", {"namespace": "default", "identity": "i"}, field)
        with begin() as s:
            with pytest.raises(SecretError):
                s.credentials.profile_data("default", "p")
            with pytest.raises(SecretError):
                s.credentials.identity_data("default", "i")

    def test_rewrap_takes_profiles_and_identities(self, begin: Begin, keys: Keys) -> None:
        keys.now = "k2"
        with begin() as s:
            assert s.credentials.rewrap(1) == 1
            assert s.credentials.rewrap(5) == 1
            assert s.credentials.rewrap(5) == 0
        del keys.keys["k1"]
        with begin() as s:
            assert s.credentials.profile_data("default", "p") == DATA
            assert s.credentials.identity_data("default", "i") == b"identity"
