"""`structable job` and `structable work`, and what `doctor` says of jobs."""

import datetime as dt
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from structable.datasets import Job, SystemData
from structable.spi import connect
from tests.cli.conftest import Command
from tests.waiting import until

ROOT = Path(__file__).parents[2]
HANDLERS = "def greet(s, job):\n    return {'greeted': job.args}\n\n\nhandlers = {'greet': greet}\nnumber = 1\n"


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"leveldb://{tmp_path}/store"
    with connect(url) as storage:
        SystemData.create(storage)
    return url


def enqueue(url: str, *kinds: str, max_attempts: int = 20) -> list[str]:
    with SystemData.open(url) as system, system.transaction() as s:
        return [s.jobs.enqueue("mail", {"to": "ada"}, kind=kind, max_attempts=max_attempts).id for kind in kinds]


def claim_and_fail(url: str, error: str) -> None:
    with SystemData.open(url) as system:
        for job in system.queue("mail").claim("w", 10):
            system.run(lambda s, job=job: s.jobs.fail(job, error))  # type: ignore[misc] # mypy cannot infer it


def stored(url: str, job: str) -> Job | None:
    with SystemData.open(url) as system:
        return system.run(lambda s: s.jobs.get(job))


def test_counts(structable: Command, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert structable("job", "counts", url).out.split() == ["queue", "READY", "RUNNING", "DONE", "DEAD", "CANCELLED"]
    enqueue(url, "greet", "greet")
    lines = structable("job", "counts", url).out.splitlines()
    assert lines[1].split() == ["mail", "2", "0", "0", "0", "0"]
    shown = json.loads(structable("job", "counts", url, "none", "--format", "json").out)
    assert shown == {"none": {"READY": 0, "RUNNING": 0, "DONE": 0, "DEAD": 0, "CANCELLED": 0}}
    monkeypatch.setenv("STRUCTABLE_URL", url)
    for queue in ([], ["mail"]):
        assert json.loads(structable("job", "counts", *queue, "--format", "json").out)["mail"]["READY"] == 2


def test_list_and_show(structable: Command, url: str) -> None:
    ids = enqueue(url, "greet", "greet")
    page = json.loads(structable("job", "list", url, "mail", "--limit", 1, "--format", "json").out)
    rest = structable("job", "list", url, "mail", "--cursor", page["next"]).out
    assert {page["jobs"][0]["id"], rest.split()[0]} == set(ids)
    assert structable("job", "list", url, "mail", "--state", "done") == (0, "", "")
    shown = json.loads(structable("job", "show", url, ids[0], "--format", "json").out)
    assert (shown["id"], shown["state"], shown["args"]) == (ids[0], "READY", {"to": "ada"})
    assert "state         READY\n" in structable("job", "show", url, ids[0]).out


def test_retry_and_cancel(structable: Command, url: str) -> None:
    (job,) = enqueue(url, "greet", max_attempts=1)
    assert structable("job", "retry", url, job).code == 1  # it is READY
    claim_and_fail(url, "broken")
    assert structable("job", "retry", url, job) == (0, f"{job} is READY\n", "")
    assert json.loads(structable("job", "cancel", url, job, "--format", "json").out) == {"id": job, "cancelled": True}
    assert structable("job", "cancel", url, job) == (1, f"{job} had ended before\n", "")


@pytest.mark.parametrize("command", ["show", "retry", "cancel"])
def test_absent_job(structable: Command, url: str, command: str) -> None:
    failed = structable("job", command, url, "absent")
    assert (failed.code, failed.out) == (3, "")
    assert "absent" in failed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("job", "list", "URL", "mail", "--state", "odd"), "'odd' is not one of READY"),
        (("job", "list", "URL", "mail", "--cursor", "x"), "cursor"),
        (("job", "list", "URL"), "every other argument"),
        (("job", "show", "1234"), "STRUCTABLE_URL"),
        (("work", "URL", "mail", "handlers"), "must be MODULE:HANDLERS"),
        (("job", "work", "URL", "mail", "handlers"), "must be MODULE:HANDLERS"),
        (("work", "URL", "mail", "no_such_module:handlers"), "no_such_module"),
        (("work", "URL", "mail", "own_handlers:number"), "must be a dict of kinds"),
        (("work", "URL", "mail", "own_handlers:absent"), "must be a dict of kinds"),
    ],
)
def test_misuse(
    structable: Command,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    (tmp_path / "own_handlers.py").write_text(HANDLERS)
    monkeypatch.syspath_prepend(tmp_path)
    failed = structable(*[url if one == "URL" else one for one in arguments])
    assert failed.code == 2
    assert message in " ".join(failed.err.replace("│", " ").split())


def test_worker_runs_jobs_until_a_signal(url: str, tmp_path: Path) -> None:
    (tmp_path / "app_jobs.py").write_text(HANDLERS)
    (job,) = enqueue(url, "greet")
    command = [sys.executable, "-m", "structable.cli", "work", url, "mail", "app_jobs:handlers"]
    with subprocess.Popen(command, cwd=tmp_path) as process:

        def greeted() -> bool:
            found = stored(url, job)
            return found is not None and found.result == {"greeted": {"to": "ada"}}

        try:
            until(greeted)
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 128 + signal.SIGTERM
        finally:
            process.kill()


def test_doctor_notes_jobs_past_their_timeout(structable: Command, url: str) -> None:
    enqueue(url, "greet", "greet")
    assert "ok       queue mail of sys_jobs: no job is past its timeout\n" in structable("doctor", url).out
    long_ago = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    with SystemData.open(url) as system, system.transaction() as s:
        s.jobs.enqueue("old", 1, due=long_ago)
    with SystemData.open(url, clock=lambda: long_ago) as system:
        assert len(system.queue("old").claim("w", 1)) == 1
    checked = structable("doctor", url)
    assert checked.code == 0
    assert "note     queue old of sys_jobs: 1 of its jobs" in checked.out
