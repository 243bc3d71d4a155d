"""`BackendConformance`: every rule of the contract as one class to subclass."""

from __future__ import annotations

from .admin_rules import AdminRules
from .aggregate_rules import AggregateRules
from .argument_rules import ArgumentRules
from .arrow_rules import ArrowRules
from .atomic_rules import AtomicRules
from .bulk_scans import BulkScanRules
from .concurrency import ThreadCases
from .conflict_rules import ConflictRules
from .decimal_rules import DecimalRules
from .derived_field_rules import DerivedFieldRules
from .feed_concurrency import FeedConcurrency
from .feed_job_rules import FeedJobRules
from .feed_keyless_rules import FeedKeylessRules
from .feed_position_rules import FeedPositionRules
from .feed_reading_rules import FeedReadingRules
from .feed_retention_rules import FeedRetentionRules
from .feed_rules import FeedRules
from .feed_schema_rules import FeedSchemaRules
from .feed_snapshot_rules import FeedSnapshotRules
from .filter_rules import FilterRules
from .frame_rules import FrameRules
from .histories import Histories
from .index_rules import IndexRules
from .interruption_rules import InterruptionRules
from .isolation import IsolationCases
from .job_id_rules import JobIdRules
from .job_modes import JobModeRules
from .job_race_rules import JobRaceRules
from .job_rules import JobRules
from .key_order import KeyOrder
from .keyless_rules import KeylessRules
from .lifecycle import LifecycleRules
from .limit_rules import LimitRules
from .live_schema_rules import LiveSchemaRules
from .log_rules import LogRules
from .many_rules import ManyRules
from .merge_conflict_rules import MergeConflictRules
from .merge_job_rules import MergeJobRules
from .merge_rules import MergeRules
from .net_change_rules import NetChangeRules
from .option_rules import OptionRules
from .patch_expectation_rules import PatchExpectationRules
from .patch_rules import PatchRules
from .processes import ForkCases, ProcessCases
from .random_feeds import RandomFeeds
from .random_merges import RandomMerges
from .random_patches import RandomPatches
from .random_ruled_rows import RandomRuledRows
from .range_rules import RangeRules
from .read_rules import ReadRules
from .renamed_field_rules import RenamedFieldRules
from .rolling_upgrade_rules import RollingUpgradeRules
from .row_kind_rules import RowKindRules
from .rule_change_rules import RuleChangeRules
from .ruled_job_rules import RuledJobRules
from .runner_rules import RunnerRules
from .scan_aggregate_rules import ScanAggregateRules
from .scan_rules import ScanRules
from .schema_change_rules import SchemaChangeRules
from .sequence_rules import SequenceRules
from .serializable_rules import SerializableRules
from .shared_plan_rules import SharedFeedRules, SharedPlanRules
from .shared_snapshot_rules import SharedSnapshotRules
from .signal_rules import SignalRules
from .specification_rules import SpecificationRules
from .state_machine import StateMachineCase
from .statistics_rules import StatisticsRules
from .store_rules import StoreRules
from .stream_job_rules import StreamJobRules
from .sum_rules import SumRules
from .traffic_rules import TrafficRules
from .transaction_rules import TransactionRules
from .transaction_size_rules import TransactionSizeRules
from .update_many_rules import UpdateManyRules
from .value_rules import ValueRules
from .whole_key_rules import WholeKeyRules
from .write_rules import WriteRules


class BackendConformance(
    SpecificationRules,
    ValueRules,
    DecimalRules,
    LimitRules,
    ArgumentRules,
    KeyOrder,
    AdminRules,
    SchemaChangeRules,
    LiveSchemaRules,
    RollingUpgradeRules,
    RuleChangeRules,
    DerivedFieldRules,
    RenamedFieldRules,
    RuledJobRules,
    RandomRuledRows,
    WriteRules,
    ReadRules,
    AtomicRules,
    ManyRules,
    UpdateManyRules,
    RangeRules,
    WholeKeyRules,
    ScanRules,
    IndexRules,
    FilterRules,
    TransactionRules,
    TransactionSizeRules,
    RunnerRules,
    ConflictRules,
    SerializableRules,
    IsolationCases,
    ThreadCases,
    Histories,
    InterruptionRules,
    SignalRules,
    ForkCases,
    ProcessCases,
    LifecycleRules,
    TrafficRules,
    StatisticsRules,
    StoreRules,
    BulkScanRules,
    ScanAggregateRules,
    SharedSnapshotRules,
    SharedPlanRules,
    JobModeRules,
    ArrowRules,
    FrameRules,
    JobIdRules,
    JobRaceRules,
    JobRules,
    StreamJobRules,
    PatchRules,
    PatchExpectationRules,
    RandomPatches,
    OptionRules,
    MergeRules,
    SumRules,
    AggregateRules,
    SequenceRules,
    RowKindRules,
    KeylessRules,
    MergeJobRules,
    MergeConflictRules,
    RandomMerges,
    FeedRules,
    FeedKeylessRules,
    FeedJobRules,
    FeedPositionRules,
    FeedSnapshotRules,
    FeedReadingRules,
    SharedFeedRules,
    FeedSchemaRules,
    FeedRetentionRules,
    LogRules,
    NetChangeRules,
    FeedConcurrency,
    RandomFeeds,
    StateMachineCase,
):
    """The whole suite. Override the fixture `storage_url`; nothing else is needed."""
