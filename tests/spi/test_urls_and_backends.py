"""`connect`: its errors for URLs and for backends that cannot be loaded."""

from pathlib import Path

import pytest

from structable.spi import BackendNotFoundError, Option, StorageUrl, connect, installed_backends, mask_url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hidden?one@host/db",
        "postgresql://me:hidden/one@host/db",
        "postgresql://me:hidden/o?ne@host/db",
        "postgresql://me:hidden@host/db?password=hidden",
        b"postgresql://me:hidden@host/db",
        "postgresql://me:12?3hidden@host/db",
        "nosuch://me@host/db?pass%77ord=hidden",
        "me:hidden@host",
    ],
)
def test_no_message_shows_a_password(url: str | bytes) -> None:
    assert "hidden" not in mask_url(url)
    with pytest.raises((ValueError, BackendNotFoundError)) as error:
        connect(url)  # type: ignore[arg-type]
    assert "hidden" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("hbase://one:9090,two:9090/prefix?principal=me@REALM", "one:9090,two:9090"),
        ("postgresql://[::1]:5432/db?user=me@host", "[::1]:5432"),
        ("leveldb:///data/a@b?owner=me@host", ""),
    ],
)
def test_an_at_sign_in_a_parameter_is_no_password(url: str, hosts: str) -> None:
    assert StorageUrl.parse(url).hosts == hosts


@pytest.fixture
def strange_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strange.py").write_text(
        "from structable.spi import Backend\nclass NoBackend: pass\nclass Unfinished(Backend): pass\n"
    )
    (tmp_path / "strange_without_library.py").write_text("raise ImportError('libstrange.so is missing')\n")
    (tmp_path / "strange_grammar.py").write_text("raise SyntaxError('cannot build the lexer')\n")
    (tmp_path / "strange_without_driver.py").write_text("import no_such_driver\n")
    about = tmp_path / "strange-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: strange\nVersion: 1.0\nProvides-Extra: driver\n"
        "Requires-Dist: no-such-driver>=1; extra == 'driver'\nProvides-Extra: name\n"
    )
    (about / "entry_points.txt").write_text(
        "[structable.backends]\nmemory = strange:NoBackend\nlibrary = strange_without_library:Backend\n"
        "driver = strange_without_driver:Backend\nname = strange:Missing\nother = strange:NoBackend\n"
        "module = strange\nunfinished = strange:Unfinished\ngrammar = strange_grammar:Backend\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("strange_backends")
@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("memory", ["strange 1.0", "structable"]),
        ("library", ["libstrange.so is missing", "pip install strange"]),
        ("driver", ["no_such_driver", "strange[driver] needs: pip install 'no-such-driver>=1'"]),
        ("grammar", ["cannot be loaded: SyntaxError: cannot build the lexer"]),
        ("name", ["Missing", "pip install 'strange[name]'"]),
        ("other", ["is not a structable Backend"]),
        ("module", ["is not a structable Backend", "'module' object is not callable"]),
        ("unfinished", ["is not a structable Backend", "connect"]),
        ("unknown", ["installed are:", "leveldb"]),
    ],
)
def test_a_backend_that_cannot_be_loaded(scheme: str, expected: list[str]) -> None:
    with pytest.raises(BackendNotFoundError) as error:
        connect(f"{scheme}://")
    for part in expected:
        assert part in str(error.value)


@pytest.mark.usefixtures("strange_backends")
def test_backends_that_cannot_be_loaded_are_listed() -> None:
    problems = {found.scheme: found.problem for found in installed_backends() if found.backend is None}
    assert set(problems) == {"memory", "library", "driver", "name", "other", "module", "unfinished", "grammar"}
    assert all(problems.values())


@pytest.mark.parametrize(("value", "text"), [(5432, "5432"), (10.0, "10"), ("", ""), ("5", "5")])
def test_a_whole_number_is_taken_for_a_text(value: object, text: str) -> None:
    assert Option("port", "", "the port").parse(value) == text


@pytest.mark.parametrize(
    "value", [True, 1.5, float("nan"), float("inf"), pytest.param(10**5000, id="huge"), None, b"5"]
)
def test_other_values_are_no_text(value: object) -> None:
    with pytest.raises(ValueError, match=r"option 'port' is .*; it must be a string"):
        Option("port", "", "the port").parse(value)
