"""`parse_options`: the meaning of a table's options, and every reason to refuse them."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn, TypeVar

from ._error_texts import not_a_field, shown
from ._errors import InvalidSpecificationError
from ._fields import Field, FieldType
from ._table_options import (
    FEED_OPTIONS,
    Aggregate,
    AggregateFunction,
    ChangelogProducer,
    MergeEngine,
    SequenceGroup,
    TableOptions,
    WriteBehaviour,
)
from ._values import is_storable

_IN_GROUPS = tuple(one for one in AggregateFunction if one.in_groups)
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|d)\Z", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_OF_A_FIELD = ("aggregate-function", "list-agg-delimiter", "distinct", "ignore-retract")
_FIELD_OPTION = re.compile(r"fields\.([^.]+)\.([a-z-]+)\Z")
_DEFAULT_FUNCTION = "fields.default-aggregate-function"
_KNOWN = (
    "write-mode, merge-engine, sequence.field, soft-delete.field, fields.F.aggregate-function, "
    "fields.default-aggregate-function, fields.F.list-agg-delimiter, fields.F.distinct, fields.F.ignore-retract, "
    "fields.S[,S2..].sequence-group, ignore-delete, remove-record-on-delete, changelog-producer, "
    "changelog-producer.compaction-interval, changelog.time-retained, user.*"
)
_Choice = TypeVar("_Choice", bound=enum.StrEnum)


def parse_options(
    table: str, fields: Mapping[str, Field], primary_key: Sequence[str], options: Mapping[str, str]
) -> TableOptions:
    """Return the meaning of a table's options.

    Raises
    ------
    InvalidSpecificationError
        If an option is unknown, has a value that is not allowed, or contradicts another or the table; the message names
        the option, its value and what is allowed.
    """
    if not options:
        return _DEFAULT
    return _Parser(table, fields, primary_key, options).parse()


_DEFAULT = TableOptions()


class _Parser:
    """The options of one specification, taken out of `left` one by one."""

    def __init__(
        self, table: str, fields: Mapping[str, Field], primary_key: Sequence[str], options: Mapping[str, str]
    ) -> None:
        self._table = table
        self._fields = fields
        self._key = primary_key
        self._options = options
        self._left = {name for name in options if not name.startswith("user.")}

    def parse(self) -> TableOptions:
        write_mode = self._choice("write-mode", WriteBehaviour.CHANGE_LOG)
        if self._key and write_mode is not WriteBehaviour.CHANGE_LOG:
            self._refuse("write-mode", "a table with a primary key is a change-log table")
        if not self._key:
            for option in sorted(self._left):
                if option not in ("write-mode", "changelog-producer", *FEED_OPTIONS):
                    self._require_known(option)
                    self._refuse(option, "it needs a primary key")
        engine = self._choice("merge-engine", MergeEngine.DEDUPLICATE)
        sequence, soft_delete = self._of_deduplicate(engine)
        groups = self._groups(engine)
        default = self._default_function(engine)
        functions = self._functions(engine, groups, default)
        ignore_delete = self._flag("ignore-delete")
        remove = self._flag("remove-record-on-delete")
        if ignore_delete and (remove or soft_delete):
            other = "remove-record-on-delete" if remove else "soft-delete.field"
            self._refuse("ignore-delete", f"it excludes {other}")
        if remove and not (engine is MergeEngine.AGGREGATION or (engine is MergeEngine.PARTIAL_UPDATE and not groups)):
            self._refuse(
                "remove-record-on-delete",
                "it needs merge-engine aggregation, or partial-update without sequence groups",
            )
        producer, interval, retained = self._of_feed(engine, write_mode)
        for option in sorted(self._left):
            self._require_known(option)
            self._refuse_unknown(option)
        return TableOptions(
            write_mode,
            engine,
            sequence,
            soft_delete,
            MappingProxyType(functions),
            default,
            groups,
            ignore_delete,
            remove,
            producer,
            interval,
            retained,
        )

    def _refuse(self, option: str, problem: str) -> NoReturn:
        value = self._options[option]
        raise InvalidSpecificationError(f"table {self._table!r}: option {option!r} is {shown(value)}; {problem}")

    def _require_known(self, option: str) -> None:
        if match := _FIELD_OPTION.match(option):
            if match[2] in (*_OF_A_FIELD, "sequence-group"):
                self._named(option, match[1])
                return
        elif option in _PLAIN:
            return
        self._refuse_unknown(option)

    def _refuse_unknown(self, option: str) -> NoReturn:
        raise InvalidSpecificationError(f"table {self._table!r}: option {option!r} is unknown; known are {_KNOWN}")

    def _take(self, option: str) -> str | None:
        self._left.discard(option)
        return self._options.get(option)

    def _choice(self, option: str, default: _Choice) -> _Choice:
        return self._member(option, type(default)) or default

    def _member(self, option: str, kind: type[_Choice]) -> _Choice | None:
        text = self._take(option)
        if text is None:
            return None
        try:
            return kind(text)
        except ValueError:
            self._refuse(option, f"allowed are {', '.join(kind)}")

    def _flag(self, option: str) -> bool:
        text = self._take(option)
        if text not in (None, "true", "false"):
            self._refuse(option, "allowed are true, false")
        return text == "true"

    def _seconds(self, option: str, default: float) -> float:
        text = self._take(option)
        if text is None:
            return default
        match = _DURATION.match(text)
        seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
        if not 0 < seconds < float("inf"):
            self._refuse(option, "a duration is a number above 0 and ms, s, min, h or d, such as '30 min'")
        return seconds

    def _named(self, option: str, text: str) -> tuple[str, ...]:
        """Return distinct fields outside the key, whose names a text separates by commas."""
        names = tuple(name.strip() for name in text.split(","))
        for position, name in enumerate(names):
            if name not in self._fields:
                self._refuse(option, f"{name!r} {not_a_field(self._fields)}")
            if name in self._key:
                self._refuse(option, f"{name!r} is part of the primary key; only other fields are allowed")
            if name in names[:position]:
                self._refuse(option, f"it names {name!r} twice")
        return names

    def _require_keyable(self, option: str, names: Sequence[str]) -> None:
        for name in names:
            if not self._fields[name].type.keyable:
                allowed = ", ".join(one.value for one in FieldType if one.keyable)
                kind = self._fields[name].type_text
                self._refuse(option, f"{name!r} is of type {kind}, which cannot be ordered; allowed are {allowed}")

    def _of_deduplicate(self, engine: MergeEngine) -> tuple[tuple[str, ...], str | None]:
        sequence: tuple[str, ...] = ()
        given, flag = self._take("sequence.field"), self._take("soft-delete.field")
        for option in ("sequence.field", "soft-delete.field"):
            if option in self._options and engine is not MergeEngine.DEDUPLICATE:
                self._refuse(option, f"it needs merge-engine {MergeEngine.DEDUPLICATE}, and this is {engine}")
        if given is not None:
            sequence = self._named("sequence.field", given)
            self._require_keyable("sequence.field", sequence)
        if flag is not None:
            names = self._named("soft-delete.field", flag)
            flag = names[0]
            if len(names) != 1 or self._fields[flag].type is not FieldType.BOOLEAN:
                self._refuse("soft-delete.field", "one boolean field is needed")
            if flag in sequence:
                self._refuse("soft-delete.field", "it is a field of sequence.field as well")
        return sequence, flag

    def _groups(self, engine: MergeEngine) -> tuple[SequenceGroup, ...]:
        groups: list[SequenceGroup] = []
        grouped: dict[str, str] = {}
        for option in self._options:
            match = _FIELD_OPTION.match(option)
            if match is None or match[2] != "sequence-group":
                continue
            if engine is not MergeEngine.PARTIAL_UPDATE:
                self._refuse(option, f"it needs merge-engine {MergeEngine.PARTIAL_UPDATE}, and this is {engine}")
            sequence = self._named(option, match[1])
            self._require_keyable(option, sequence)
            members = self._named(option, self._take(option) or "")
            for name in (*sequence, *members):
                if grouped.setdefault(name, option) != option or (name in sequence and name in members):
                    self._refuse(option, f"{name!r} is in a sequence group already; a field is in one group only")
            groups.append(SequenceGroup(sequence, tuple(sorted(members))))
        return tuple(sorted(groups, key=lambda group: group.fields))

    def _functions(
        self, engine: MergeEngine, groups: Sequence[SequenceGroup], default: AggregateFunction | None
    ) -> dict[str, Aggregate]:
        members = [name for group in groups for name in group.members]
        functions: dict[str, Aggregate] = {}
        for name, one in self._fields.items():
            if name in self._key:
                continue
            option = f"fields.{name}.aggregate-function"
            function = self._member(option, AggregateFunction) or default
            if function is not None:
                if option in self._options:
                    self._check_place(option, engine, name in members, function)
                elif engine is not MergeEngine.AGGREGATION:
                    continue
                if not function.fits(one.type):
                    fitting = ", ".join(each for each in AggregateFunction if each.fits(one.type))
                    shown_option = option if option in self._options else _DEFAULT_FUNCTION
                    self._refuse(shown_option, f"field {name!r} is of type {one.type_text}, which takes {fitting}")
                functions[name] = self._aggregate(name, function)
            self._refuse_leftovers(name)
        return functions

    def _default_function(self, engine: MergeEngine) -> AggregateFunction | None:
        default = self._member(_DEFAULT_FUNCTION, AggregateFunction)
        if default is not None and engine is not MergeEngine.AGGREGATION:
            self._refuse(_DEFAULT_FUNCTION, f"it needs merge-engine {MergeEngine.AGGREGATION}, and this is {engine}")
        if engine is MergeEngine.AGGREGATION:
            return default or AggregateFunction.LAST_NON_NULL_VALUE
        return None

    def _check_place(self, option: str, engine: MergeEngine, member: bool, function: AggregateFunction) -> None:
        if engine is MergeEngine.AGGREGATION:
            return
        if engine is not MergeEngine.PARTIAL_UPDATE or not member:
            self._refuse(option, "it needs merge-engine aggregation, or a member of a sequence group of partial-update")
        if function not in _IN_GROUPS:
            self._refuse(option, f"a member of a sequence group takes {', '.join(_IN_GROUPS)}")

    def _aggregate(self, name: str, function: AggregateFunction) -> Aggregate:
        of_lists = (f"fields.{name}.list-agg-delimiter", f"fields.{name}.distinct")
        if function is not AggregateFunction.LISTAGG:
            for option in of_lists:
                if option in self._options:
                    self._refuse(option, f"it needs the function {AggregateFunction.LISTAGG}, and this is {function}")
        delimiter = self._take(of_lists[0])
        if delimiter == "":
            self._refuse(of_lists[0], "at least one character is needed")
        if delimiter is not None and not is_storable(delimiter):
            self._refuse(of_lists[0], "it holds a NUL character or a lone surrogate, which a string must not")
        return Aggregate(
            function,
            "," if delimiter is None else delimiter,
            self._flag(of_lists[1]),
            self._flag(f"fields.{name}.ignore-retract"),
        )

    def _refuse_leftovers(self, name: str) -> None:
        for kind in _OF_A_FIELD:
            option = f"fields.{name}.{kind}"
            if option in self._left:
                self._refuse(option, f"field {name!r} is not aggregated")

    def _of_feed(self, engine: MergeEngine, write_mode: WriteBehaviour) -> tuple[ChangelogProducer, float, float]:
        log = write_mode is WriteBehaviour.LOG
        producer = self._choice("changelog-producer", ChangelogProducer.INPUT if log else ChangelogProducer.NONE)
        if log and producer is not ChangelogProducer.INPUT:
            self._refuse(
                "changelog-producer",
                f"a log has its rows in its change feed alone; allowed is {ChangelogProducer.INPUT}",
            )
        if producer is ChangelogProducer.FULL_COMPACTION and not self._key:
            self._refuse("changelog-producer", "it needs a primary key")
        if producer is ChangelogProducer.INPUT and engine is MergeEngine.FIRST_ROW:
            self._refuse("changelog-producer", f"merge-engine {engine} takes none, lookup, full-compaction")
        interval_option, retained_option = FEED_OPTIONS
        interval = self._seconds(interval_option, _DEFAULT.compaction_interval)
        retained = self._seconds(retained_option, _DEFAULT.time_retained)
        if interval_option in self._options and producer is not ChangelogProducer.FULL_COMPACTION:
            self._refuse(interval_option, f"it needs changelog-producer {ChangelogProducer.FULL_COMPACTION}")
        if retained_option in self._options and producer is ChangelogProducer.NONE:
            self._refuse(retained_option, "it needs a changelog-producer other than none")
        return producer, interval, retained


_PLAIN = (
    "write-mode",
    "merge-engine",
    "sequence.field",
    "soft-delete.field",
    _DEFAULT_FUNCTION,
    "ignore-delete",
    "remove-record-on-delete",
    "changelog-producer",
    *FEED_OPTIONS,
)
