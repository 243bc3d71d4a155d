"""The dataset `secrets`, and the providers of keys."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from structable.datasets import EnvironmentKeys, FileKeys, NotFoundError, SecretError, StaleGenerationError, SystemData
from structable.spi import Storage
from tests.datasets.conftest import Begin
from tests.datasets.support.keys import Keys, tampered

VALUE = b"very private"
TABLE = "sys_secret_values"


@pytest.fixture
def system(shared_store: Storage, system: SystemData, keys: Keys) -> SystemData:
    """Return the datasets with master keys."""
    return SystemData.open(shared_store, keys=keys)


class TestSecrets:
    def test_value_is_read_back_and_versions_count(self, begin: Begin) -> None:
        with begin() as s:
            assert s.secrets.put("default", "a", b"old", description="d", properties={"x": 1}) == 1
            assert s.secrets.put("default", "a", VALUE, version=1) == 2
            assert s.secrets.put("default", "b", b"", version=0) == 1
        with begin() as s:
            assert s.secrets.get("default", "a") == s.secrets.require("default", "a") == VALUE
            assert s.secrets.get("default", "b") == b""
            described = s.secrets.describe("default", "a")
            assert described is not None
            assert (described.version, described.description, described.properties) == (2, "d", {"x": 1})
            assert [one.secret for one in s.secrets.page("default").items] == ["a", "b"]
            assert s.tx.table(TABLE).count() == 2

    def test_other_version_is_refused(self, begin: Begin) -> None:
        with begin() as s:
            s.secrets.put("default", "a", VALUE)
            for version in (0, 2):
                with pytest.raises(StaleGenerationError):
                    s.secrets.put("default", "a", b"x", version=version)
            with pytest.raises(StaleGenerationError):
                s.secrets.put("default", "b", b"x", version=1)
            assert s.secrets.get("default", "a") == VALUE

    def test_absent_ones(self, begin: Begin) -> None:
        with begin() as s:
            assert s.secrets.get("default", "a") is None
            assert s.secrets.describe("default", "a") is None
            with pytest.raises(NotFoundError):
                s.secrets.require("default", "a")
            with pytest.raises(NotFoundError):
                s.secrets.delete("default", "a")
            with pytest.raises(NotFoundError):
                s.secrets.put("absent", "a", VALUE)

    def test_deleted_one_leaves_nothing(self, begin: Begin) -> None:
        with begin() as s:
            s.secrets.put("default", "a", VALUE)
            s.secrets.delete("default", "a")
            assert s.secrets.get("default", "a") is None
            assert s.tx.table(TABLE).count() == 0

    @pytest.mark.parametrize("field", ["key_id", "wrapped", "nonce", "data"])
    def test_tampered_row_does_not_open(self, begin: Begin, field: str) -> None:
        with begin() as s:
            s.secrets.put("default", "a", VALUE)
            tampered(s, TABLE, {"namespace": "default", "secret": "a", "version": 1}, field)
        with begin() as s, pytest.raises(SecretError) as error:
            s.secrets.get("default", "a")
        assert "private" not in str(error.value)

    def test_swapped_rows_do_not_open(self, begin: Begin) -> None:
        with begin() as s:
            s.secrets.put("default", "a", VALUE)
            s.secrets.put("default", "b", b"other")
            rows = s.tx.table(TABLE)
            row = rows.read(("default", "a", 1))
            assert row is not None
            rows.upsert({**row, "secret": "b"})
        with begin() as s, pytest.raises(SecretError):
            s.secrets.get("default", "b")

    def test_other_key_and_no_provider(self, begin: Begin, keys: Keys, shared_store: Storage) -> None:
        with begin() as s:
            s.secrets.put("default", "a", VALUE)
            keys.keys["k1"] = b"9" * 32
            with pytest.raises(SecretError):
                s.secrets.get("default", "a")
            del keys.keys["k1"]
            with pytest.raises(SecretError):
                s.secrets.get("default", "a")
            with pytest.raises(SecretError):
                s.secrets.put("default", "b", VALUE)
        with SystemData.open(shared_store).transaction() as s:
            for act in (
                lambda: s.secrets.get("default", "a"),
                lambda: s.secrets.put("default", "b", VALUE),
                lambda: s.secrets.rewrap(1),
            ):
                with pytest.raises(SecretError, match="keys="):
                    act()

    @pytest.mark.parametrize(
        "lacking", [KeyError("k1"), None, "1" * 32, b"short"], ids=["raises", "none", "str", "short"]
    )
    def test_provider_that_lacks_a_key(self, begin: Begin, shared_store: Storage, lacking: object) -> None:
        class Mapping:
            def key(self, key_id: str) -> bytes:
                if isinstance(lacking, KeyError):
                    raise lacking
                return lacking  # type: ignore[return-value]  # no key

            def current(self) -> tuple[str, bytes]:
                return "k2", self.key("k2")

        with begin() as s:
            s.secrets.put("default", "a", VALUE)
        with SystemData.open(shared_store, keys=Mapping()).transaction() as s:
            for act in (
                lambda: s.secrets.get("default", "a"),
                lambda: s.secrets.put("default", "b", VALUE),
                lambda: s.secrets.rewrap(1),
            ):
                with pytest.raises(SecretError):
                    act()
            assert s.secrets.describe("default", "b") is None

    def test_rewrap_goes_to_the_current_key(self, begin: Begin, keys: Keys) -> None:
        with begin() as s:
            for name in "abc":
                s.secrets.put("default", name, VALUE)
        keys.now = "k2"
        with begin() as s:
            assert s.secrets.rewrap(2) == 2
            assert s.secrets.rewrap(2) == 1
            assert s.secrets.rewrap(2) == 0
        del keys.keys["k1"]
        with begin() as s:
            assert {s.secrets.get("default", name) for name in "abc"} == {VALUE}

    def test_rewrap_of_a_tampered_value_writes_nothing(self, begin: Begin, keys: Keys) -> None:
        with begin() as s:
            for name in "abc":
                s.secrets.put("default", name, VALUE)
            s.credentials.put_profile("default", "a", provisioner="p", data=VALUE)
            s.credentials.put_identity("default", "a", profile="default/a", data=VALUE)
            tampered(s, TABLE, {"namespace": "default", "secret": "b", "version": 1}, "wrapped")
            tampered(s, "sys_credential_identities", {"namespace": "default", "identity": "a"}, "wrapped")
        keys.now = "k2"
        with begin() as s:
            for rewrap in (s.secrets.rewrap, s.credentials.rewrap):
                with pytest.raises(SecretError):
                    rewrap(10)
        with begin() as s:
            for table, number in ((TABLE, 3), ("sys_credential_profiles", 1)):
                with s.tx.table(table).scan() as rows:
                    assert [row["key_id"] for row in rows] == ["k1"] * number

    def test_stored_rows_and_texts_show_nothing(self, begin: Begin, keys: Keys) -> None:
        with begin() as s:
            s.secrets.put("default", "a", VALUE)
            with s.tx.table(TABLE).scan() as rows:
                raw = [value for row in rows for value in row.values() if isinstance(value, bytes)]
        assert len(raw) == 3
        assert not [one for one in raw if VALUE in one or keys.keys["k1"] in one]


class TestKeyProviders:
    def test_file(self, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        text = base64.b64encode(b"1" * 32).decode()
        path.write_text(json.dumps({"current": "k", "keys": {"k": text, "short": "AAAA"}}), encoding="utf-8")
        path.chmod(0o640)
        keys = FileKeys(path)
        with pytest.raises(SecretError, match="0640"):
            keys.current()
        path.chmod(0o600)
        assert keys.current() == ("k", b"1" * 32)
        assert keys.key("k") == b"1" * 32
        for absent in ("absent", "short"):
            with pytest.raises(SecretError, match=absent):
                keys.key(absent)
        path.chmod(0o644)
        with pytest.raises(SecretError, match="0644"):
            keys.key("k")
        path.chmod(0o600)
        path.write_text(f"{text} garbled", encoding="utf-8")
        with pytest.raises(SecretError) as error:
            keys.key("k")
        assert text not in str(error.value)
        path.unlink()
        with pytest.raises(SecretError, match="cannot be read"):
            keys.current()

    def test_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keys = EnvironmentKeys("TESTED_KEY_")
        with pytest.raises(SecretError, match="TESTED_KEY_CURRENT"):
            keys.current()
        monkeypatch.setenv("TESTED_KEY_CURRENT", "k")
        with pytest.raises(SecretError, match="'k'"):
            keys.current()
        monkeypatch.setenv("TESTED_KEY_k", "not base64!")
        with pytest.raises(SecretError, match="'k'"):
            keys.current()
        monkeypatch.setenv("TESTED_KEY_k", base64.b64encode(b"1" * 32).decode())
        assert keys.current() == ("k", b"1" * 32)
        assert "1111" not in repr(keys)
