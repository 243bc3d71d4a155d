"""Which tests of the suite have to fail on a store with a planted bug, and which to pass on one that only differs."""

from structable.testing.conformance.isolation import IsolationCases

MACHINE = "test_random_operations_match_the_model"

CAUGHT = {
    "nothing": [],
    "lost-updates": [
        "test_p4_lost_update[one table-snapshot]",
        "test_g0_write_cycles[two tables-serializable]",
        "test_writes_of_an_existing_row_conflict[snapshot-both_write-increment]",
        "test_row_set_back_conflicts",
        MACHINE,
    ],
    "no-serializable": [
        "test_g2_item_write_skew[one table-serializable]",
        "test_g2_predicate_write_skew[two tables-serializable]",
        "test_g2_two_anti_dependency_edges[one table-serializable]",
        "test_every_read_of_a_row_is_protected[scan_index]",
        "test_random_histories[serializable]",
    ],
    "reads-latest": [
        "test_g_single_read_skew[one table-snapshot]",
        "test_snapshot_is_not_younger_than_the_first_operation[count-snapshot]",
    ],
    "idle-traffic": ["test_traffic_grows_with_calls", "test_traffic_of_threads"],
    "forgotten-traffic": ["test_traffic_after_close"],
    "wrong-order": ["test_order_of_keys[auto-commit-int]", "test_long_scan[one transaction]", MACHINE],
    "null-is-different": [
        "test_comparisons_are_not_true_of_null[auto-commit]",
        "test_comparisons_of_every_type[one transaction-long]",
        "test_fields_compare_with_one_another[auto-commit-long]",
        MACHINE,
    ],
    "upsert-replaces": ["test_upsert[calls]"],
    "insert-is-quiet": ["test_insert[calls]", "test_one_insert_wins"],
    "stale-index": ["test_index_follows_every_write[own row-upsert]", "test_own_writes_are_read[snapshot]", MACHINE],
    "counts-twice": ["test_count[committed]"],
    "half-upserts": ["test_bad_rows_are_refused[calls of many]"],
    "writes-when-read-only": ["test_read_only_refuses_every_write[snapshot]", "test_run_read_only"],
    "swallows-conflicts": ["test_swallowed_conflict_is_never_a_commit"],
    "splits-of-now": ["test_all_splits_see_one_snapshot", "test_left_plan_cannot_be_read"],
    "younger-plans": ["test_shared_plans_see_commits_whole", "test_shared_plans_do_not_see_later_commits"],
    "forgetful-aggregates": ["test_partial_aggregates_add_up", "test_rows_are_counted"],
    "half-closed": ["test_closed_shared_snapshot_refuses_plans"],
    "forgetful-jobs": ["test_job_committed_twice", "test_job_aborted", "test_merge_job_committed_twice"],
    "deaf-streams": ["test_aborted_batch_is_not_committed"],
    "forgetful-streams": ["test_batch_counts_once[upsert]", "test_lower_batches_are_committed"],
    "patches-put-anyway": ["test_arms", "test_present_and_absent_of_one_key", "test_random_patches"],
    "patches-expect-nothing": [
        "test_insert_arm_of_an_existing_key",
        "test_expectations_are_judged_at_the_commit",
        "test_repeated_arms",
    ],
    "updates-see-nothing": [
        "test_later_updates_see_earlier_ones[auto-commit]",
        "test_update_many_is_update_one_by_one",
    ],
    "starts-drop": [
        "test_table_keeps_what_a_specification_lacks[index]",
        "test_restarts_never_drop[starts0]",
        "test_older_release_works_beside_a_newer",
        MACHINE,
    ],
    "refuses-older": [
        "test_table_keeps_what_a_specification_lacks[field]",
        "test_table_keeps_what_a_specification_lacks[short]",
        "test_mixed_specification_adds_what_is_new_and_keeps_the_rest",
        "test_start_that_changes_nothing_disturbs_no_transaction",
        "test_older_release_merges_beside_a_newer",
        MACHINE,
    ],
    "ignores-engines": [
        "test_partial_update",
        "test_sum",
        "test_lower_sequence_is_ignored",
        "test_upsert_in_both_views[one transaction]",
        "test_random_change_rows_match_the_model[min]",
        MACHINE,
    ],
    "retracts-delete": [
        "test_sum_retracts",
        "test_soft_delete",
        "test_ignore_delete[first-row]",
        "test_partial_update_refuses_retracts",
        MACHINE,
    ],
    "takes-all-equal-rows": ["test_bag", "test_random_changes_of_a_bag_match_the_model"],
    "loses-last-change": [
        "test_feed_of_every_verb[lookup]",
        "test_feed_of_a_job[upsert-input]",
        "test_random_commits_keep_the_laws_of_feeds",
        MACHINE,
    ],
    "wrong-preimages": [
        "test_feed_of_merges[deduplicate-lookup]",
        "test_random_commits_keep_the_laws_of_feeds",
        MACHINE,
    ],
    "splits-commits": [
        "test_feed_of_one_transaction[input]",
        "test_feed_of_a_job[upsert-lookup]",
        "test_random_commits_keep_the_laws_of_feeds",
    ],
    "silent-expiry": ["test_lost_positions", "test_expire_by_age[lookup]"],
    "late-positions": ["test_snapshot_and_feed_without_gap", "test_position_of_a_plan"],
    "jobs-out-of-order": ["test_job_merges_in_the_order_of_partitions", "test_listagg", "test_change_jobs_of_a_bag"],
}
"""Of each planted bug, tests that have to fail; a store without one has to pass them all."""

ALLOWED = {
    "writes-wait": [
        "test_g0_write_cycles[two tables-snapshot]",
        "test_g1c_circular_information_flow[one table-serializable]",
        "test_otv_observed_transaction_vanishes[one table-snapshot]",
        "test_pmp_for_write_predicates[one table-serializable]",
        "test_g2_item_write_skew[one table-serializable]",
        "test_writes_of_an_existing_row_conflict[snapshot-both_write-upsert]",
        "test_writes_of_an_existing_row_conflict[serializable-one_writes_after_the_other-increment]",
        "test_writes_of_an_absent_row_conflict[snapshot-both_write-insert]",
        "test_increments_of_one_field",
        "test_swallowed_conflict_is_never_a_commit",
        "test_after_a_conflict_only_leaving_is_left",
        "test_run_retries_a_swallowed_conflict",
        "test_auto_commit_view_retries",
        "test_bank_in_threads[serializable]",
        "test_counters",
        "test_iterables_outlast_retries",
        "test_one_insert_wins",
        MACHINE,
    ],
    "refuses-anywhere": [
        *(f"{case}[one table-serializable]" for case in vars(IsolationCases) if case.startswith("test_")),
        "test_every_read_of_a_row_is_protected[scan_index]",
        "test_every_look_at_an_absent_row_is_protected[delete of nothing]",
        "test_transactions_one_after_another_never_conflict",
        "test_real_time_order",
        "test_run_retries_conflicts[serializable]",
        "test_bank_in_threads[serializable]",
        "test_write_skew_in_threads",
        "test_random_histories[serializable]",
        MACHINE,
    ],
}
"""Stores that do what the contract leaves open otherwise than memory does, and tests that they have to pass as well."""


def rules_of(store: str) -> list[str]:
    """Return the tests to run on a planted store; on the one without a bug, all that find one elsewhere."""
    if store == "nothing":
        return sorted({name for names in CAUGHT.values() for name in names})
    return [*ALLOWED.get(store, []), *CAUGHT.get(store, [])]
