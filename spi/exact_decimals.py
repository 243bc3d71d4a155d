"""Contexts in which decimals are computed exactly or not at all."""

from __future__ import annotations

from collections.abc import Callable
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_HALF_EVEN,
    Context,
    FloatOperation,
    Inexact,
    InvalidOperation,
    getcontext,
    localcontext,
)
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["EXACT", "exact_context", "in_exact_context"]

P = ParamSpec("P")
R = TypeVar("R")


def exact_context(digits: int) -> Context:
    """Return a context in which a result of more than so many digits is an `ArithmeticError`.

    Each attribute is given: a program may have changed those of `decimal.DefaultContext`, from which others come.
    """
    traps = [Inexact, InvalidOperation]  # an overflow, or an underflow, is inexact
    return Context(digits, ROUND_HALF_EVEN, MIN_EMIN, MAX_EMAX, capitals=1, clamp=0, flags=[], traps=traps)


EXACT = exact_context(160)
"""For a few operations on numbers of 38 digits."""


def in_exact_context(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that reads, compares and writes decimals as in `EXACT`, where they have one text."""

    @wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> R:
        context = getcontext()
        traps = context.traps
        if context.capitals and traps[InvalidOperation] and not traps[FloatOperation]:
            return function(*args, **options)  # the usual context does the same; another takes 0.6 us
        with localcontext(EXACT):
            return function(*args, **options)

    return run
