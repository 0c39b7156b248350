"""Draw, look-up and product in one kernel, for CUDA and ROCm; `quantal.torch._launch` launches it.

A tensor goes through in tiles of 8·LANES units. Every access is four neighbours wide, and a thread
draws all that it needs, so threads exchange nothing. Of a tile that is full no unit is asked
whether it is there: that takes a fifth of the instructions, and only the last tile needs it.

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


@triton.jit(do_not_specialize=["count"])
def multiply_by_seed(
    x_ptr,
    y_ptr,
    values_ptr,
    threshold_ptr,
    seed_ptr,
    count,
    ALIGNED: tl.constexpr,
    WIDE: tl.constexpr,
    BY_HAND: tl.constexpr,
    LANES: tl.constexpr,
):
    """Multiply x by the coefficients of a seed: two int64, the key and the level of the call.

    ALIGNED says that the addresses of x and y are multiples of 16, WIDE that the number of a unit
    may have over 31 bits, BY_HAND how `_rounded` rounds.
    """
    tile = _program(WIDE)
    level = tl.load(seed_ptr + 1).to(tl.int32) & 0x3FFFFFFF
    start = _start(threshold_ptr, level)
    lane = tl.arange(0, LANES)
    counter = tile * LANES + lane
    low = counter.to(tl.uint32)
    zero = low * 0
    high = (counter >> 32).to(tl.uint32) if WIDE else zero
    word0, word1, word2, word3 = tl.philox(tl.load(seed_ptr), low, high, zero, zero)
    first = tile * (8 * LANES) + 4 * lane
    second = first + 4 * LANES
    if (tile + 1) * (8 * LANES) <= count:
        _multiply_four(
            x_ptr, y_ptr, values_ptr, start, word0, word1, first, count, ALIGNED, True, BY_HAND
        )
        _multiply_four(
            x_ptr, y_ptr, values_ptr, start, word2, word3, second, count, ALIGNED, True, BY_HAND
        )
    else:
        _multiply_four(
            x_ptr, y_ptr, values_ptr, start, word0, word1, first, count, ALIGNED, False, BY_HAND
        )
        _multiply_four(
            x_ptr, y_ptr, values_ptr, start, word2, word3, second, count, ALIGNED, False, BY_HAND
        )


@triton.jit(do_not_specialize=["word0", "word1", "level", "count", "last"])
def multiply_by_key(
    x_ptr,
    y_ptr,
    values_ptr,
    threshold_ptr,
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
    start = _start(threshold_ptr, level)
    program = _program(WIDE)
    block = program * LANES + tl.arange(0, LANES)
    low = block.to(tl.uint32)
    high = (block >> 32).to(tl.uint32) if WIDE else low * 0
    word0, word1 = _threefry2x32(word0.to(tl.uint32), word1.to(tl.uint32), high, low)
    if RAGGED:
        per_row = (last + 3) // 4
        line = block // per_row
        column = 4 * (block - line * per_row)
        first = line * last + column
        # Of each block that there is, as many units as its row still has.
        end = tl.minimum(first + last - column, count)
        _multiply_four(
            x_ptr, y_ptr, values_ptr, start, word0, word1, first, end, False, False, BY_HAND
        )
    elif (program + 1) * (4 * LANES) <= count:
        _multiply_four(
            x_ptr, y_ptr, values_ptr, start, word0, word1, 4 * block, count, ALIGNED, True, BY_HAND
        )
    else:
        _multiply_four(
            x_ptr, y_ptr, values_ptr, start, word0, word1, 4 * block, count, ALIGNED, False, BY_HAND
        )


@triton.jit
def _program(WIDE: tl.constexpr):
    """Return the number of this program, in what its products fit."""
    return tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)


@triton.jit
def _start(threshold_ptr, level):
    """Return what turns a cell into its place in the table: a call chooses one of two rows."""
    # Rows on devices start at cell -32768, the first of the signed numbers of 16 bits. The second
    # is chosen if the level is below the threshold.
    return tl.where(level < tl.load(threshold_ptr), 65536 + 32768, 32768)


@triton.jit
def _multiply_four(
    x_ptr,
    y_ptr,
    values_ptr,
    start,
    word0,
    word1,
    first,
    end,
    ALIGNED: tl.constexpr,
    WHOLE: tl.constexpr,
    BY_HAND: tl.constexpr,
):
    """Multiply four neighbours a lane: all of them if WHOLE, else those before the end."""
    place0 = (word0 & 0xFFFF).to(tl.int32) ^ start
    place1 = (word0 >> 16).to(tl.int32) ^ start
    place2 = (word1 & 0xFFFF).to(tl.int32) ^ start
    place3 = (word1 >> 16).to(tl.int32) ^ start
    if not ALIGNED:
        # Four accesses one unit wide: of a wide one, Triton would make such by an exchange between
        # threads, through shared memory. All are read before one is written, since x may be y.
        unit1, unit2, unit3 = first + 1, first + 2, first + 3
        inside0 = None if WHOLE else first < end
        inside1 = None if WHOLE else unit1 < end
        inside2 = None if WHOLE else unit2 < end
        inside3 = None if WHOLE else unit3 < end
        y0 = _product(x_ptr, values_ptr, place0, first, inside0, ".ca", BY_HAND)
        y1 = _product(x_ptr, values_ptr, place1, unit1, inside1, ".ca", BY_HAND)
        y2 = _product(x_ptr, values_ptr, place2, unit2, inside2, ".ca", BY_HAND)
        y3 = _product(x_ptr, values_ptr, place3, unit3, inside3, ".ca", BY_HAND)
        tl.store(y_ptr + first, y0, mask=inside0)
        tl.store(y_ptr + unit1, y1, mask=inside1)
        tl.store(y_ptr + unit2, y2, mask=inside2)
        tl.store(y_ptr + unit3, y3, mask=inside3)
    elif x_ptr.dtype.element_ty == tl.float64:  # of which 128 bits, one access, hold two
        unit = first[:, None] + tl.arange(0, 2)[None, :]
        place = tl.join(place0, place1)
        inside = None if WHOLE else unit < end
        y = _product(x_ptr, values_ptr, place, unit, inside, ".cg", BY_HAND)
        tl.store(y_ptr + unit, y, mask=inside)
        unit += 2
        place = tl.join(place2, place3)
        inside = None if WHOLE else unit < end
        y = _product(x_ptr, values_ptr, place, unit, inside, ".cg", BY_HAND)
        tl.store(y_ptr + unit, y, mask=inside)
    else:
        unit = first[:, None] + tl.arange(0, 4)[None, :]
        place = tl.join(tl.join(place0, place2), tl.join(place1, place3)).reshape(unit.shape)
        inside = None if WHOLE else unit < end
        y = _product(x_ptr, values_ptr, place, unit, inside, ".cg", BY_HAND)
        tl.store(y_ptr + unit, y, mask=inside)


@triton.jit
def _product(x_ptr, values_ptr, place, unit, inside, CACHE: tl.constexpr, BY_HAND: tl.constexpr):
    c = tl.load(values_ptr + place, eviction_policy="evict_last")
    # Half precision is multiplied in float32: only the product is rounded.
    x = tl.load(x_ptr + unit, mask=inside, cache_modifier=CACHE)
    exact: tl.constexpr = tl.float64 if x.dtype == tl.float64 else tl.float32
    return _rounded(x.to(exact) * c.to(exact), x.dtype, BY_HAND)


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
