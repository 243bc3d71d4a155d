"""The rules that `make quick` leaves out, and those that CI leaves out: all but a tenth, in rotation.

The former start processes, interrupt calls, repeat races or write many rows; or, on LevelDB, belong to the layer that
it shares with memory. The latter are those behind a pooler, of a measured storage and of tables with rules, which are
tested on the same store without.
"""

import pytest

TOPICS = {"processes", "interruption_rules", "concurrency", "histories", "job_race_rules", "merge_conflict_rules"}
# Tested on the memory store already, which shares this layer with LevelDB.
SHARED_TOPICS = {
    "aggregate_rules",
    "argument_rules",
    "decimal_rules",
    "filter_rules",
    "key_order",
    "limit_rules",
    "option_rules",
    "range_rules",
    "row_kind_rules",
    "sequence_rules",
    "specification_rules",
    "sum_rules",
    "value_rules",
}
RULES = {
    "test_id_of_a_dropped_table_is_unknown",
    "test_ids_across_processes",
    "test_large_job",
    "test_large_table_is_split",
    "test_long_transaction_gets_through",
    "test_many_groups",
    "test_merge_job_of_several_processes",
    "test_one_of_many_commits_applies",
    "test_other_processes_stage_and_commit",
    "test_partial_aggregates_add_up",
    "test_plans_of_changes",
    "test_snapshot_holds_while_it_is_referenced",
    "test_splits_find_what_a_scan_finds",
    "test_staged_rows_outlive_their_process",
    "test_window_of_a_merge_job",
}
AGAIN = {
    "TestFillingMemory",
    "TestMeasured",
    "TestMeasuredLevelDB",
    "TestPostgreSQLThroughPgBouncer",
    "TestRuledLevelDB",
}
"""What runs the rules on a store of another class in another way."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them as slow, with all rules on a database that another process owns, and as long."""
    for item in items:
        if isinstance(item, pytest.Function):
            topic = item.function.__module__.rpartition(".")[2]
            name = "" if item.cls is None else item.cls.__name__
            shared = name == "TestLevelDB" and topic in SHARED_TOPICS
            if name == "TestLevelDBOfAnotherProcess" or shared or topic in TOPICS or item.originalname in RULES:
                item.add_marker("slow")
            if name in AGAIN:
                item.add_marker("long")
