"""Portable keys: known answers, counters beyond 2³², and the layout of indices."""

import itertools

import numpy as np
import pytest

import quantal
from quantal.keys import Key


def test_block_function_gives_the_known_answers():
    """The test vectors that the authors of Threefry publish with their Random123 library."""
    known = [
        (((0, 0), (0, 0)), (0x6B200159, 0x99BA4EFE)),
        (((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2), (0x1CB996FC, 0xBB002BE7)),
        (((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)), (0xC4923A9C, 0x483DF7A0)),
    ]
    for ((k0, k1), (high, low)), expected in known:
        word0, word1 = Key(k0, k1).blocks(high << 32 | low, 1)
        assert (int(word0[0]), int(word1[0])) == expected


def test_counters_have_64_bits():
    key = quantal.key(3)
    across = key.blocks(2**32 - 2, 4)
    for i, n in enumerate((2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1)):
        one = key.blocks(n, 1)
        assert [w[i] for w in across] == [w[0] for w in one]
    words = [tuple(int(w[0]) for w in key.blocks(n, 1)) for n in (0, 1, 2**32, 2**32 + 1, 2**63)]
    assert len(set(words)) == 5


def test_chunks_do_not_show():
    key = quantal.key(4)
    whole = key.bits(100_003)
    np.testing.assert_array_equal(whole[70_000:], key.bits(100_003)[70_000:])
    words = key.blocks(65_530, 12)
    np.testing.assert_array_equal(whole[65_530:65_542], words[0] ^ words[1])


def test_seed_fills_both_words():
    assert quantal.key(0x0123456789ABCDEF) == Key(0x01234567, 0x89ABCDEF)
    assert repr(quantal.key(5)) == "Key(0x00000000, 0x00000005)"
    assert hash(quantal.key(5)) == hash(quantal.key(np.uint8(5)))


def test_fold_in_split_and_seeds_do_not_collide():
    keys = [quantal.key(s) for s in range(50)]
    keys += [quantal.key(s).fold_in(n) for s, n in itertools.product(range(50), range(50))]
    keys += [k for s in range(50) for k in quantal.key(s).fold_in(1).split(20)]
    assert len(set(keys)) == len(keys)
    # Splitting is folding in, as in JAX: one must not use both on the same key.
    assert quantal.key(7).split(3)[2] == quantal.key(7).fold_in(2)


def test_indices_unpack_blocks_in_order_and_start_each_row_anew():
    key = quantal.key(9)
    for last in (1, 2, 3, 4, 5, 8, 13):
        drawn = key.indices((3, last))
        assert drawn.flags.c_contiguous  # torch takes it as it is
        blocks = -(-last // 4)
        words = np.stack(key.blocks(0, 3 * blocks), axis=-1).reshape(3, blocks, 2)
        for row, column in itertools.product(range(3), range(last)):
            word = int(words[row, column // 4, column % 4 // 2])
            assert drawn[row, column] == (word >> 16 * (column % 2)) & 0xFFFF
    assert key.indices(()) == key.indices(1)[0]
    assert key.indices((2, 0)).shape == (2, 0)
    assert key.indices((0, 3)).shape == (0, 3)


def test_levels_are_the_upper_30_bits():
    key = quantal.key(1)
    np.testing.assert_array_equal(key.levels((4, 5)), key.bits((4, 5)) >> 2)
    assert key.level() == key.levels(1)[0]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: quantal.key(-1), ValueError, "seed: expected an integer in [0, 2**64)"),
        (lambda: quantal.key(2**64), ValueError, "seed: expected an integer in [0, 2**64)"),
        (lambda: quantal.key(1.0), TypeError, "Received: seed=1.0"),
        (lambda: quantal.key(True), TypeError, "Received: seed=True"),
        (lambda: quantal.key(0).fold_in(2**32), ValueError, "n: expected an integer in [0, 2**32)"),
        (lambda: quantal.key(0).split(-1), ValueError, "n: expected an integer in [0, 2**32)"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)
