"""The transaction protocol, run with random interleavings and faults, and the checker, run on protocols with a bug."""

from __future__ import annotations

import os

import pytest

from .simulation.cluster import HOT, PATIENT, RACES, STORAGE, UNCERTAIN, UNFED, Bug, Mode, World
from .simulation.history import Violation
from .simulation.run import simulate

SEEDS = int(os.environ.get("STRUCTABLE_TEST_SIMULATION_SEEDS", "250"))
CHUNK = 125
WORLDS = {"races": RACES, "storage": STORAGE, "hot": HOT, "patient": PATIENT, "unfed": UNFED, "uncertain": UNCERTAIN}
CHUNKS = [(name, first) for name in ("races", "storage") for first in range(0, SEEDS, CHUNK)]
CHUNKS += [("hot", 0), ("patient", 0), ("uncertain", 0)]


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.name.lower())
@pytest.mark.parametrize(
    ("world", "first"),
    [(WORLDS[name], first) for name, first in CHUNKS],
    ids=[f"{name}-{first}" for name, first in CHUNKS],
)
def test_no_promise_is_broken(world: World, mode: Mode, first: int) -> None:
    commits = aborts = 0
    for seed in range(first, first + CHUNK):
        try:
            counts = simulate(world, mode, seed)
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}")
        commits += counts.commits
        aborts += counts.aborts
        assert (counts.collected > 0) <= world.collects
    assert commits > 10 * CHUNK
    assert aborts > 5 * CHUNK


# The worlds that can reveal a bug, and the number of seeds within which they must.
PLANTED = [
    (Bug.READER_DOES_NOT_PUSH, RACES, 20),
    (Bug.READER_DOES_NOT_PUSH, STORAGE, 20),
    (Bug.ABSENT_STATUS_IS_IGNORED, RACES, 100),
    (Bug.NO_READ_BACK, RACES, 10),
    (Bug.NO_READ_BACK, STORAGE, 10),
    (Bug.COMMIT_TIMESTAMPS_FROM_RANGES, RACES, 10),
    (Bug.COMMIT_TIMESTAMPS_FROM_RANGES, STORAGE, 10),
    (Bug.LOST_REPLY_IS_AN_ABORT, RACES, 40),
    (Bug.LOST_REPLY_IS_AN_ABORT, STORAGE, 40),
    (Bug.READS_ARE_NOT_VALIDATED, RACES, 20),
    (Bug.READS_ARE_NOT_VALIDATED, STORAGE, 20),
    (Bug.MARKERS_ARE_NOT_VALIDATED, RACES, 20),
    (Bug.MARKERS_ARE_NOT_VALIDATED, STORAGE, 20),
    (Bug.MARKERS_ARE_NOT_VALIDATED_AGAIN, RACES, 100),
    (Bug.MARKERS_ARE_NOT_VALIDATED_AGAIN, STORAGE, 100),
    (Bug.INTENT_DELETED_BEFORE_PUT, RACES, 20),
    (Bug.INTENT_DELETED_BEFORE_PUT, STORAGE, 20),
    (Bug.INCREMENT_CREATES_NO_INDEX_ENTRY, RACES, 10),
    (Bug.INCREMENT_CREATES_NO_INDEX_ENTRY, STORAGE, 10),
    (Bug.BULK_READS_BEFORE_ITS_LOCK, RACES, 30),
    (Bug.BULK_READS_BEFORE_ITS_LOCK, STORAGE, 30),
    (Bug.BULK_KEEPS_PENDING, RACES, 50),
    (Bug.BULK_KEEPS_PENDING, STORAGE, 50),
    (Bug.BULK_INTENT_AT_LOCK, RACES, 200),
    (Bug.BULK_INTENT_AT_LOCK, STORAGE, 200),
    (Bug.MERGE_DOES_NOT_PUSH, HOT, 100),
    (Bug.MERGE_FORGETS_LAST_WRITE, STORAGE, 500),
    (Bug.BOUND_IGNORES_PENDING, STORAGE, 200),
    (Bug.COLLECTS_BELOW_FLOORS, PATIENT, 20),
    (Bug.LANE_IS_LEFT_TOO_EARLY, RACES, 10),
    (Bug.LANE_IS_LEFT_TOO_EARLY, STORAGE, 10),
    (Bug.LANE_HIDES_INTENTS, HOT, 1_000),
    (Bug.FINALISER_TAKES_ANY_INTENT_OF_A_LANE, RACES, 100),
    (Bug.BATCH_HAS_ONE_BASE, HOT, 1_000),
    (Bug.RECORD_OVERWRITES, RACES, 100),
    (Bug.RECORD_OVERWRITES, STORAGE, 20),
    (Bug.WRITES_ARE_NOT_LISTED, RACES, 20),
    (Bug.WRITES_ARE_NOT_LISTED, STORAGE, 20),
    (Bug.JOB_IS_NOT_LISTED, RACES, 30),
    (Bug.JOB_IS_NOT_LISTED, STORAGE, 30),
    (Bug.LISTS_ARE_READ_FIRST, RACES, 300),
    (Bug.LISTS_ARE_READ_FIRST, STORAGE, 300),
    (Bug.MARKER_IS_TAKEN_FOR_UNCHANGED, RACES, 10),
    (Bug.MARKER_IS_TAKEN_FOR_UNCHANGED, STORAGE, 10),
    (Bug.OLDER_LIST_WINS, RACES, 500),
    (Bug.OLDER_LIST_WINS, STORAGE, 500),
    (Bug.LIST_LEAVES_OUT_UNDECIDED, UNCERTAIN, 600),
    (Bug.LIST_HAS_NO_FLOOR, PATIENT, 100),
    (Bug.LIST_HAS_NO_FLOOR, STORAGE, 300),
    (Bug.OWN_LIST_IS_IGNORED, RACES, 20),
    (Bug.OWN_LIST_IS_IGNORED, STORAGE, 100),
    (Bug.LIST_IS_REMOVED_TOO_EARLY, PATIENT, 500),
    (Bug.LIST_IS_REMOVED_WITH_NEWER, UNFED, 1_500),
    (Bug.UNKNOWN_IS_NOT_LISTED, UNCERTAIN, 600),
    (Bug.MARKED_BEFORE_PLACED, RACES, 10),
    (Bug.MARKED_BEFORE_PLACED, STORAGE, 10),
    (Bug.MARKED_BEFORE_PLACED, HOT, 10),
    (Bug.ENTRIES_READ_BEFORE_GATE, RACES, 50),
    (Bug.ENTRIES_READ_BEFORE_GATE, STORAGE, 50),
    (Bug.FEED_READER_DOES_NOT_PUSH, RACES, 50),
    (Bug.FEED_READER_DOES_NOT_PUSH, STORAGE, 50),
    (Bug.GATE_ENTERED_AFTER_DRAWING, RACES, 50),
    (Bug.GATE_ENTERED_AFTER_DRAWING, STORAGE, 50),
    (Bug.GATE_EMPTIED_BEFORE_ENTRIES, RACES, 200),
    (Bug.GATE_EMPTIED_BEFORE_ENTRIES, STORAGE, 200),
    (Bug.FINALISED_BEFORE_ENTRIES, RACES, 50),
    (Bug.FINALISED_BEFORE_ENTRIES, STORAGE, 50),
    (Bug.GATE_IS_FORGOTTEN_TOO_EARLY, STORAGE, 300),
    (Bug.GATE_IS_FORGOTTEN_TOO_EARLY, PATIENT, 300),
]


@pytest.mark.parametrize(
    ("bug", "world", "seeds"),
    PLANTED,
    ids=[f"{bug.name.lower()}-{name}" for bug, world, _ in PLANTED for name in WORLDS if WORLDS[name] is world],
)
def test_planted_bug_is_found(bug: Bug, world: World, seeds: int) -> None:
    mode = Mode.SERIALIZABLE if bug is Bug.READS_ARE_NOT_VALIDATED else Mode.SNAPSHOT

    def run_all() -> None:
        for seed in range(seeds):
            simulate(world, mode, seed, bug)

    with pytest.raises(Violation):
        run_all()
