"""The keys of YCSB's workloads have the frequencies of its definitions, and are the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.workloads.ycsb.distributions import (
    SCRAMBLED_ITEMS,
    SCRAMBLED_ZETA,
    THETA,
    ScrambledZipfian,
    Zipfian,
    keys_of,
    scatter,
    zeta,
)

DRAWS = 400_000


def test_zipfian_ranks_have_their_frequencies() -> None:
    items = 1_000
    ranks = Zipfian(items).draw(np.random.default_rng(1), DRAWS)
    assert ranks.min() == 0
    assert ranks.max() == items - 1
    found = np.bincount(ranks, minlength=items) / DRAWS
    expected = 1 / np.arange(1, items + 1) ** THETA / zeta(items)
    # The two first ranks are exact, but for the chance of the draws.
    assert found[:2] == pytest.approx(expected[:2], rel=0.02)
    # The others follow a continuous curve: their sums are within a few hundredths of all draws.
    for ranks_below in (10, 30, 100, 300, 900):
        assert found[:ranks_below].sum() == pytest.approx(expected[:ranks_below].sum(), abs=0.03)


def test_zeta_is_the_sum_of_its_definition() -> None:
    assert zeta(2) == 1 + 0.5**0.99
    assert zeta(1_000) == pytest.approx(sum(1 / rank**0.99 for rank in range(1, 1_001)))
    # The constant for ten billion items: the sum of a million and the integral of the rest.
    head, rest = 1_000_000, SCRAMBLED_ITEMS
    integral = ((rest + 0.5) ** 0.01 - (head + 0.5) ** 0.01) / 0.01
    assert pytest.approx(zeta(head) + integral, rel=1e-6) == SCRAMBLED_ZETA


def test_scrambled_numbers_are_skewed_and_scattered() -> None:
    items = 10_000
    numbers = ScrambledZipfian(items).draw(np.random.default_rng(1), DRAWS)
    assert numbers.min() >= 0
    assert numbers.max() < items
    found = np.bincount(numbers, minlength=items) / DRAWS
    first, second = (scatter(np.array([0, 1])) % items).tolist()
    assert found.argmax() == first
    assert found[first] == pytest.approx(1 / SCRAMBLED_ZETA, rel=0.03)
    assert found[second] == pytest.approx(0.5**THETA / SCRAMBLED_ZETA, rel=0.03)
    # Scattered: no tenth of the numbers has much more than its part, once the most frequent are left out.
    rest = np.sort(found)[:-100]
    assert rest.max() < 10 / items
    halves = found[: items // 2].sum()
    assert 0.3 < halves < 0.7


@pytest.mark.parametrize(("number", "expected"), [(0, 6284781860667377211), (1, 8517097267634966620)])
def test_hash_is_ycsbs(number: int, expected: int) -> None:
    assert int(scatter(np.array([number]))[0]) == expected == _reference(number)
    assert keys_of(np.array([number])) == [f"user{expected}"]


def test_hash_of_many_is_that_of_each() -> None:
    numbers = [2, 255, 256, 99_999, 2**40 + 7, 9_999_999_999]
    assert scatter(np.array(numbers)).tolist() == [_reference(number) for number in numbers]


def test_draws_depend_on_the_seed_alone() -> None:
    for distribution in (Zipfian(1_000), ScrambledZipfian(1_000)):
        once, again, other = (distribution.draw(np.random.default_rng(seed), 500).tolist() for seed in (5, 5, 6))
        assert once == again != other


def _reference(number: int) -> int:
    """YCSB's Java, a byte at a time."""
    hashed = 0xCBF29CE484222325
    for _ in range(8):
        hashed ^= number & 0xFF
        number >>= 8
        hashed = hashed * 1099511628211 % 2**64
    return abs(hashed - 2**64 if hashed >= 2**63 else hashed)
