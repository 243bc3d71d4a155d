"""export --all and import --all: a folder that holds a store, and makes another one of it."""

from pathlib import Path

import pytest

from structable.spi import Field, Storage, TableSpecification, connect
from tests.cli.conftest import Command, Fails, every_store
from tests.cli.test_transfer import content

TOTALS = TableSpecification(
    "totals",
    [Field.string("k"), Field.long("n")],
    ["k"],
    options={"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
)
LOG = TableSpecification("log", [Field.string("text")], options={"write-mode": "append-only"})


@every_store
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_dump_restores(
    structable: Command, fails: Fails, url: str, copy_url: str, storage: Storage, tmp_path: Path, form: str
) -> None:
    for spec in (TOTALS, LOG, LOG.evolve(name="none")):
        storage.admin.create(spec)
    storage.table("totals").upsert_many([{"k": "a", "n": 1}, {"k": "a", "n": 2}])
    storage.table("log").insert_many([{"text": "x"}, {"text": "x"}])
    folder = tmp_path / "backup"
    outcome = structable("export", url, "--all", folder, "--format", form)
    assert outcome.code == 0, outcome.err
    assert outcome.err.splitlines()[1:3] == [
        f"2 rows of table log are in {folder}/log.{form}",
        f"0 rows of table none are in {folder}/none.{form}",
    ]
    tables = storage.admin.list()
    assert sorted(file.name for file in folder.iterdir()) == sorted(
        f"{name}.{end}" for name in tables for end in (form, "toml")
    )
    assert "is not empty; name a new folder" in fails(2, "export", url, "--all", folder)
    announced = structable("import", copy_url, "--all", folder, "--dry-run") if form == "csv" else None
    outcome = structable("import", copy_url, "--all", folder, "--job-id", "restored")
    assert outcome.code == 0, outcome.err
    assert announced is None or announced.code in (0, 3)
    with connect(copy_url) as copy:
        assert copy.admin.list() == tables
        for name in tables:
            assert copy.admin.get_specification(name) == storage.admin.get_specification(name)
            assert content(copy, name) == content(storage, name)
        # Again, under the same id: nothing is added, not even to the table without a key.
        assert structable("import", copy_url, "--all", folder, "--job-id", "restored").code == 0
        assert copy.table("log").count() == 2
        assert "has rows in" in fails(2, "import", copy_url, "--all", folder)
        for name in ("log", "none"):  # without a key, they take no other mode
            (folder / f"{name}.toml").unlink()
        copy.admin.drop("runs")
        copy.admin.create(TableSpecification("runs", [Field.string("app")], ["app"]))
        assert "field 'started' is missing there" in fails(1, "import", copy_url, "--all", folder, "--mode", "replace")


def test_a_folder_that_is_no_dump(fails: Fails, url: str, storage: Storage, tmp_path: Path) -> None:
    assert "has no specifications of tables" in fails(2, "import", url, "--all", tmp_path)
    (tmp_path / "t.toml").write_text('name = "t"\nprimary_key = ["k"]\nfields = { k = "string" }\n')
    assert "one file with the rows of the table must be in the same folder; there are none" in fails(
        2, "import", url, "--all", tmp_path
    )
    assert "leave TABLE and FILE out" in fails(2, "import", url, "runs", "--all", tmp_path)
    assert "leave the selection of rows and columns out" in fails(
        2, "export", url, "--all", tmp_path / "x", "--prefix", "a"
    )
    for flag, value in (("--format", "csv"), ("--expect-rows", 0)):
        assert f"{flag} is for one file; leave it out with --all" in fails(
            2, "import", url, "--all", tmp_path, flag, value
        )
    assert "name the table and the file, or give --all FOLDER" in fails(2, "export", url)
    assert "name the file, or give --all FOLDER" in fails(2, "import", url, "runs")
    assert storage.admin.list() == ["everything", "runs"]
