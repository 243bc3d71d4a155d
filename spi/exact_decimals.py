"""Contexts in which decimals are computed exactly or not at all."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Inexact, InvalidOperation

__all__ = ["EXACT", "exact_context"]


def exact_context(digits: int) -> Context:
    """Return a context in which a result of more than so many digits is an `ArithmeticError`.

    Each attribute is given: a program may have changed those of `decimal.DefaultContext`, from which others come.
    """
    traps = [Inexact, InvalidOperation]  # an overflow, or an underflow, is inexact
    return Context(digits, ROUND_HALF_EVEN, MIN_EMIN, MAX_EMAX, capitals=1, clamp=0, flags=[], traps=traps)


EXACT = exact_context(160)
"""For a few operations on numbers of 38 digits."""
