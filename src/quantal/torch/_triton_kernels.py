"""Draw, look-up and product in one kernel, for CUDA and ROCm; `quantal.torch._launch` launches it.

A tensor goes through in tiles of 8·LANES units. Every access is four neighbours wide, and a thread
draws all that it needs, so threads exchange nothing.

The stream of a seed (`multiply_by_seed`): lane i of tile t enciphers the counter LANES·t + i by
Philox-4x32-10 with the seed as its key. Words 0 and 1 are the cells of units 4i to 4i + 3 of the
first half of the tile, words 2 and 3 those of the second half, in the order low and high half of a
word. `quantal.torch._self_check.cells_of_seed` has the same in NumPy.

The stream of a portable key (`multiply_by_key`) is that of `quantal.keys`.
"""

from __future__ import annotations

# ruff: noqa: N803 - constants of a kernel are in capitals, as Triton has them
import triton
import triton.language as tl

__all__ = ["multiply_by_key", "multiply_by_seed"]


@triton.jit
def multiply_by_seed(
    x_pointer,
    y_pointer,
    values_pointer,
    threshold_pointer,
    seed_pointer,
    count,
    ALIGNED: tl.constexpr,
    WIDE: tl.constexpr,
    BY_HAND: tl.constexpr,
    LANES: tl.constexpr,
):
    """Multiply x by the coefficients of a seed: two int64, the key and the level of the call.

    ALIGNED says that the count and the addresses are multiples of 16, WIDE that the number of a
    unit may have over 31 bits, BY_HAND how `_rounded` rounds.
    """
    tile = _program(WIDE)
    level = tl.load(seed_pointer + 1).to(tl.int32) & 0x3FFFFFFF
    row = _row(values_pointer, threshold_pointer, level)
    lane = tl.arange(0, LANES)
    counter = tile * LANES + lane
    low = counter.to(tl.uint32)
    zero = low * 0
    high = (counter >> 32).to(tl.uint32) if WIDE else zero
    word0, word1, word2, word3 = tl.philox(tl.load(seed_pointer), low, high, zero, zero)
    first = tile * (8 * LANES) + 4 * lane
    _multiply_four(x_pointer, y_pointer, row, word0, word1, first, count, ALIGNED, BY_HAND)
    first += 4 * LANES
    _multiply_four(x_pointer, y_pointer, row, word2, word3, first, count, ALIGNED, BY_HAND)


@triton.jit(do_not_specialize=["word0", "word1", "level"])
def multiply_by_key(
    x_pointer,
    y_pointer,
    values_pointer,
    threshold_pointer,
    word0,
    word1,
    level,
    count,
    last,
    ALIGNED: tl.constexpr,
    RAGGED: tl.constexpr,
    WIDE: tl.constexpr,
    BY_HAND: tl.constexpr,
    LANES: tl.constexpr,
):
    """Multiply x by the coefficients of a portable key, given by its words and its level.

    Each row of ``last`` units starts with a new block of four. RAGGED says that ``last`` is no
    multiple of four and that there are more rows than one; the rest is as with a seed.
    """
    row = _row(values_pointer, threshold_pointer, level)
    block = _program(WIDE) * LANES + tl.arange(0, LANES)
    low = block.to(tl.uint32)
    high = (block >> 32).to(tl.uint32) if WIDE else low * 0
    word0, word1 = _threefry2x32(word0.to(tl.uint32), word1.to(tl.uint32), high, low)
    if RAGGED:
        per_row = (last + 3) // 4
        line = block // per_row
        column = 4 * (block - line * per_row)
        first = line * last + column
        # Four accesses one unit wide, since rows start anywhere.
        for half in tl.static_range(4):
            cell = _halves(word0 if half < 2 else word1)[half % 2]
            inside = (first < count) & (column + half < last)
            _multiply(x_pointer, y_pointer, row, cell, first + half, inside, False, BY_HAND)
    else:
        _multiply_four(x_pointer, y_pointer, row, word0, word1, 4 * block, count, ALIGNED, BY_HAND)


@triton.jit
def _program(WIDE: tl.constexpr):
    """Return the number of this program, in what its products fit."""
    return tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)


@triton.jit
def _row(values_pointer, threshold_pointer, level):
    """Return where the row of a call starts: the second if its level is below the threshold."""
    return values_pointer + tl.where(level < tl.load(threshold_pointer), 65536, 0)


@triton.jit
def _halves(word):
    """Return the cells that the low and the high half of a word stand for."""
    # Tables on devices start at cell -32768, the first of the signed numbers of 16 bits.
    word ^= 0x80008000
    return word & 0xFFFF, word >> 16


@triton.jit
def _multiply_four(
    x_pointer,
    y_pointer,
    row,
    word0,
    word1,
    first,
    count,
    ALIGNED: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Multiply four neighbours a lane."""
    low0, high0 = _halves(word0)
    low1, high1 = _halves(word1)
    if x_pointer.dtype.element_ty == tl.float64:  # of which 128 bits, one access, hold two
        unit = first[:, None] + tl.arange(0, 2)[None, :]
        inside = _inside(unit, first, count, ALIGNED)
        cell = tl.join(low0, high0)
        _multiply(x_pointer, y_pointer, row, cell, unit, inside, ALIGNED, BY_HAND)
        unit += 2
        inside = _inside(unit, first, count, ALIGNED)
        cell = tl.join(low1, high1)
        _multiply(x_pointer, y_pointer, row, cell, unit, inside, ALIGNED, BY_HAND)
    else:
        unit = first[:, None] + tl.arange(0, 4)[None, :]
        inside = _inside(unit, first, count, ALIGNED)
        cell = tl.join(tl.join(low0, low1), tl.join(high0, high1)).reshape(unit.shape)
        _multiply(x_pointer, y_pointer, row, cell, unit, inside, ALIGNED, BY_HAND)


@triton.jit
def _inside(unit, first, count, ALIGNED: tl.constexpr):
    """Return which units there are: of an aligned count, all four neighbours or none."""
    return (first[:, None] < count).broadcast_to(unit.shape) if ALIGNED else unit < count


@triton.jit
def _multiply(
    x_pointer, y_pointer, row, cell, unit, inside, ALIGNED: tl.constexpr, BY_HAND: tl.constexpr
):
    c = tl.load(row + cell.to(tl.int32), eviction_policy="evict_last")
    # A wide access needs no line twice: it leaves the nearest cache to the table.
    cache: tl.constexpr = ".cg" if ALIGNED else ".ca"
    x = tl.load(x_pointer + unit, mask=inside, other=0, cache_modifier=cache)
    # Half precision is multiplied in float32: only the product is rounded.
    exact: tl.constexpr = tl.float64 if x.dtype == tl.float64 else tl.float32
    y = _rounded(x.to(exact) * c.to(exact), x.dtype, BY_HAND)
    tl.store(y_pointer + unit, y, mask=inside)


@triton.jit
def _rounded(y, dtype: tl.constexpr, BY_HAND: tl.constexpr):
    """Return a product in the dtype of its input, rounded to nearest, of two as near the even one.

    Most of AMD's devices have no instruction for it in bfloat16, and a compiler that rounds there
    looks for NaN first. BY_HAND does without: the last 16 bits of a product that is NaN are zeros,
    as those of its input are, so that what is added does not carry.
    """
    if BY_HAND and dtype == tl.bfloat16:
        bits = y.to(tl.uint32, bitcast=True)
        bits += ((bits >> 16) & 1) + 0x7FFF
        return (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    return y.to(dtype)


@triton.jit
def _threefry2x32(key0, key1, x0, x1):
    """Encipher pairs of words: `quantal.keys.threefry2x32`, which Triton cannot call."""
    key2 = key0 ^ key1 ^ 0x1BD11BDA
    x0 += key0
    x1 += key1
    x0, x1 = _four_rounds(x0, x1, 13, 15, 26, 6)
    x0, x1 = _four_rounds(x0 + key1, x1 + key2 + 1, 17, 29, 16, 24)
    x0, x1 = _four_rounds(x0 + key2, x1 + key0 + 2, 13, 15, 26, 6)
    x0, x1 = _four_rounds(x0 + key0, x1 + key1 + 3, 17, 29, 16, 24)
    x0, x1 = _four_rounds(x0 + key1, x1 + key2 + 4, 13, 15, 26, 6)
    return x0 + key2, x1 + key0 + 5


@triton.jit
def _four_rounds(x0, x1, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    x0 += x1
    x1 = _rotate(x1, A) ^ x0
    x0 += x1
    x1 = _rotate(x1, B) ^ x0
    x0 += x1
    x1 = _rotate(x1, C) ^ x0
    x0 += x1
    x1 = _rotate(x1, D) ^ x0
    return x0, x1


@triton.jit
def _rotate(x, PLACES: tl.constexpr):
    return (x << PLACES) | (x >> (32 - PLACES))
