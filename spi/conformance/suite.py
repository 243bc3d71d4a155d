"""`BackendConformance`: every rule of the contract as one class to subclass."""

from __future__ import annotations

from .admin_rules import AdminRules
from .atomic_rules import AtomicRules
from .filter_rules import FilterRules
from .index_rules import IndexRules
from .key_order import KeyOrder
from .limit_rules import LimitRules
from .range_rules import RangeRules
from .read_rules import ReadRules
from .scan_rules import ScanRules
from .schema_change_rules import SchemaChangeRules
from .specification_rules import SpecificationRules
from .value_rules import ValueRules
from .write_rules import WriteRules

__all__ = ["BackendConformance"]


class BackendConformance(
    SpecificationRules,
    ValueRules,
    LimitRules,
    KeyOrder,
    AdminRules,
    SchemaChangeRules,
    WriteRules,
    ReadRules,
    AtomicRules,
    RangeRules,
    ScanRules,
    IndexRules,
    FilterRules,
):
    """The whole suite. Override the fixture `storage_url`, and declare `capabilities`; nothing else is needed."""
