"""Portable keys are JAX's keys, bit for bit."""

import jax
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

import quantal

SEEDS = [0, 1, 2**31 - 1, 2**31, 2**32 - 1]
SEEDS += [int(s) for s in np.random.default_rng(0).integers(2**32, size=95)]


def words(key):
    return [key.word0, key.word1]


@pytest.mark.parametrize("seed", SEEDS)
def test_bits_fold_in_and_split_equal_those_of_jax(seed):
    ours, theirs = quantal.key(seed), jax.random.key(seed)
    assert words(ours) == jax.random.key_data(theirs).tolist()
    for shape in ((), (1,), (7,), (3, 5), (2, 1, 4), (0, 3)):
        np.testing.assert_array_equal(ours.bits(shape), jax.random.bits(theirs, shape))
    for n in (0, 1, 12345, 2**32 - 1):
        folded = jax.random.key_data(jax.random.fold_in(theirs, np.uint32(n)))
        assert words(ours.fold_in(n)) == folded.tolist()
    for n in (1, 2, 3, 10):
        split = jax.random.key_data(jax.random.split(theirs, n))
        assert [words(key) for key in ours.split(n)] == split.tolist()


def test_large_arrays_equal_those_of_jax():
    # Large enough for several of NumPy's chunks.
    np.testing.assert_array_equal(
        quantal.key(5).bits((100, 1003)), jax.random.bits(jax.random.key(5), (100, 1003))
    )


def test_64_bit_seeds_equal_those_of_jax_in_its_64_bit_mode():
    with jax.enable_x64(True):
        for seed in (2**32, 2**40 + 12345, 2**63 - 1):
            theirs = jax.random.key_data(jax.random.key(seed))
            assert words(quantal.key(seed)) == theirs.tolist()


def test_counters_beyond_32_bits_equal_those_of_jax():
    start, count = 2**32 - 3, 7
    counter = np.uint64(start) + np.arange(count, dtype=np.uint64)
    halves = np.concatenate([counter >> np.uint64(32), counter & np.uint64(0xFFFFFFFF)])
    data = jax.random.key_data(jax.random.key(11))
    theirs = np.asarray(threefry_2x32(data, halves.astype(np.uint32))).reshape(2, count)
    np.testing.assert_array_equal(quantal.key(11).blocks(start, count), theirs)
