"""The text form of filters, as `--where` has it: parses a text into a filter, with values by the field's type.

    expression  = conjunction { "or" conjunction }
    conjunction = negation { "and" negation }
    negation    = "not" negation | "(" expression ")" | condition
    condition   = field ( "==" | "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) ( value | field )
                | field "is" [ "not" ] "null"
                | field [ "not" ] "in" "(" [ value { "," value } ] ")"
                | field [ "not" ] "between" value "and" value
                | field [ "not" ] "startswith" value
                | "startswith" "(" field "," value ")"

Keywords are read in any case, and only where the grammar expects them: a field may be called `in`, while one called
`not` is written in backticks. A value is a quoted text, in which the quote is doubled, or a
bare word such as 42, -1.5e3, true, 0x0aff, nan or 2024-05-31. The right side of a comparison is another field if it is
in backticks, or a bare word that is a field's name and no value.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from ._error_texts import not_a_field
from ._errors import InvalidFieldError
from ._fields import Field, FieldType
from ._filters import And, Column, Filter, Or, col
from ._literals import LiteralError, parse_value
from ._rules.filters import bind_filter
from ._specification import TableSpecification
from ._values import Value

_MAX_DEPTH = 50
_NULLS = ("null", "none")
_TOKENS = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
      | (?P<name>`[^`]*`)
      | (?P<operator>==|=|!=|<>|<=|<|>=|>)
      | (?P<mark>[()\[\],])
      | (?P<word>[+-]?[\w.][\w.:+-]*)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_COMPARISONS: dict[str, Callable[[str, Value | Column], Filter]] = {
    "==": lambda name, value: col(name) == value,
    "=": lambda name, value: col(name) == value,
    "!=": lambda name, value: col(name) != value,
    "<>": lambda name, value: col(name) != value,
    "<": lambda name, value: col(name) < value,
    "<=": lambda name, value: col(name) <= value,
    ">": lambda name, value: col(name) > value,
    ">=": lambda name, value: col(name) >= value,
}


class _TokenKind(enum.Enum):
    TEXT = "text"
    NAME = "name"
    OPERATOR = "operator"
    MARK = "mark"
    WORD = "word"
    END = "end"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: _TokenKind
    text: str
    column: int

    def __str__(self) -> str:
        return (
            "the end"
            if self.kind is _TokenKind.END
            else self.text
            if self.kind is _TokenKind.TEXT
            else f"'{self.text}'"
        )


class WhereError(ValueError):
    """A text is not a filter of the table; the message names the column, counted in characters from 1."""


def parse_where(spec: TableSpecification, text: str) -> Filter:
    """Return the filter of an expression such as `status == 'RUNNING' and attempt < 3 or payload is null`.

    Raises
    ------
    WhereError
        If the text is not a filter of the table.
    """
    return _WhereParser(spec, text).parse()


def _problem(column: int, reason: str) -> NoReturn:
    raise WhereError(f"column {column}: {reason}")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while True:
        match = _TOKENS.match(text, position)
        if match is None or match.lastgroup is None:
            start = len(text) - len(text[position:].lstrip())
            unclosed = text[start] in "'\"`"
            _problem(start + 1, "the quote is not closed" if unclosed else f"'{text[start]}' has no meaning here")
        yield _Token(_TokenKind(match.lastgroup), match[match.lastgroup], match.start(match.lastgroup) + 1)
        if match.lastgroup == "end":
            return
        position = match.end()


class _WhereParser:
    def __init__(self, spec: TableSpecification, text: str) -> None:
        self._spec = spec
        self._tokens = list(_tokens(text))
        self._position = 0
        self._depth = 0

    def parse(self) -> Filter:
        if self._tokens[0].kind is _TokenKind.END:
            _problem(1, "the expression is empty")
        where = self._any_of()
        if self._next.kind is not _TokenKind.END:
            _problem(self._next.column, f"{self._next} is not expected here; 'and', 'or' or the end is")
        return where

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _take(self) -> _Token:
        token = self._next
        if token.kind is not _TokenKind.END:
            self._position += 1
        return token

    def _is(self, *texts: str, ahead: int = 0) -> bool:
        token = self._tokens[min(self._position + ahead, len(self._tokens) - 1)]
        return token.kind in (_TokenKind.WORD, _TokenKind.MARK) and token.text.lower() in texts

    def _took(self, *texts: str) -> bool:
        if self._is(*texts):
            self._position += 1
            return True
        return False

    def _want(self, *texts: str, after: str) -> None:
        if not self._took(*texts):
            _problem(self._next.column, f"'{texts[0]}' is expected {after}, not {self._next}")

    def _any_of(self) -> Filter:
        parts = [self._all_of()]
        while self._took("or"):
            parts.append(self._all_of())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all_of(self) -> Filter:
        parts = [self._negation()]
        while self._took("and"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negation(self) -> Filter:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            _problem(self._next.column, f"parentheses and 'not' are nested more than {_MAX_DEPTH} deep")
        try:
            if self._took("not"):
                return ~self._negation()
            if self._took("("):
                inner = self._any_of()
                self._want(")", after="to close the parenthesis")
                return inner
            return self._condition()
        finally:
            self._depth -= 1

    def _condition(self) -> Filter:
        if self._is("startswith") and self._is("(", ahead=1):
            self._position += 2
            field = self._field()
            self._want(",", after="after the field")
            prefix = self._prefix(field)
            self._want(")", after="to close startswith(")
            return col(field.name).startswith(prefix)
        field = self._field()
        operator = self._take()
        if operator.kind is _TokenKind.OPERATOR:
            return self._comparison(field, _COMPARISONS[operator.text])
        word = operator.text.lower() if operator.kind is _TokenKind.WORD else ""
        if word == "is":
            negated = self._took("not")
            self._want("null", "none", after="after 'is'")
            return col(field.name).is_not_null() if negated else col(field.name).is_null()
        if word == "not":
            operator = self._take()
            where = self._word_condition(field, operator, "'in', 'between' or 'startswith' is expected after 'not'")
            return ~where
        return self._word_condition(field, operator, f"a comparison is expected after the field '{field.name}'")

    def _word_condition(self, field: Field, operator: _Token, expectation: str) -> Filter:
        match operator.text.lower() if operator.kind is _TokenKind.WORD else "":
            case "in":
                return col(field.name).isin(self._values(field))
            case "between":
                low = self._value(field)
                self._want("and", after="between the two values of 'between'")
                return col(field.name).between(low, self._value(field))
            case "startswith":
                return col(field.name).startswith(self._prefix(field))
        _problem(operator.column, f"{expectation}, not {operator}")

    def _values(self, field: Field) -> list[Value]:
        closing = "]" if self._is("[") else ")"
        self._want("(", "[", after="after 'in'")
        values: list[Value] = []
        while not self._took(closing):
            if values:
                self._want(",", after=f"or '{closing}' after a value of 'in'")
            values.append(self._value(field))
        return values

    def _field(self) -> Field:
        token = self._take()
        if token.kind is _TokenKind.NAME:
            name = token.text[1:-1]
        elif token.kind is _TokenKind.WORD:
            name = token.text
        else:
            _problem(token.column, f"a field is expected here, not {token}")
        if name not in self._spec:
            _problem(token.column, f"'{name}' {not_a_field(self._spec.field_names, self._spec.name)}")
        return self._spec.field(name)

    def _comparison(self, field: Field, compared: Callable[[str, Value | Column], Filter]) -> Filter:
        token = self._next
        if token.kind is not _TokenKind.NAME and not self._names_a_field(token, field):
            return compared(field.name, self._value(field))
        where = compared(field.name, col(self._field().name))
        try:
            bind_filter(self._spec, where)
        except InvalidFieldError as error:
            _problem(token.column, f"'{error.field}' {error.reason}")
        return where

    def _names_a_field(self, token: _Token, field: Field) -> bool:
        word = token.text
        if token.kind is not _TokenKind.WORD or word not in self._spec or word.lower() in _NULLS:
            return False
        if field.type is FieldType.STRING:  # strings are quoted
            return True
        try:
            parse_value(field, word)
        except LiteralError:
            return True
        return False

    def _prefix(self, field: Field) -> str | bytes:
        column = self._next.column
        value = self._value(field)
        if not isinstance(value, str | bytes):
            _problem(column, f"'startswith' takes string and bytes; '{field.name}' is of type {field.type_text}")
        return value

    def _value(self, field: Field) -> Value:
        token = self._take()
        if token.kind is _TokenKind.TEXT:
            text = token.text[1:-1].replace(token.text[0] * 2, token.text[0])
        elif token.kind is _TokenKind.WORD:
            text = token.text
            if text.lower() in _NULLS:
                _problem(token.column, f"null cannot be compared; write '{field.name} is [not] null'")
            if field.type is FieldType.STRING:
                _problem(token.column, f"the string {text} for the field '{field.name}' must be quoted: '{text}'")
        else:
            _problem(token.column, f"a value for the field '{field.name}' is expected here, not {token}")
        try:
            return parse_value(field, text)
        except LiteralError as error:
            _problem(token.column, f"field '{field.name}': {error}")
