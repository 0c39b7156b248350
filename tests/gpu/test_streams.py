"""The kernels in Triton's interpreter: NumPy's coefficients bit for bit, from seeds and from keys."""

import itertools
import math

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

import quantal
import quantal.numpy
from quantal import Dilution, keys
from quantal.keys import threefry2x32
from quantal.table import LEVELS, table
from quantal.torch import _launch, _triton_kernels
from quantal.torch._self_check import cells_of_seed, philox4x32
from quantal.torch._tables import tables

CPU = torch.device("cpu")
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
TILE = 8 * _launch.LANES
# None, one, a few, rows of odd length, less and more than a tile, whole tiles, more than a block.
SHAPES = [(), (0,), (3, 0, 4), (1,), (5, 7), (2, 3, 9), (16,), (2, 516), (TILE,), (2 * TILE + 3,)]
SHAPES += [(3, 1025), (TILE - 1,), (TILE + 1,), (TILE // 2 + 16,)]
LAWS = [
    Dilution(0.2, 0.2),
    Dilution(0.5, math.inf),
    Dilution(1e-4, 1e-3),
    Dilution(0.4, 3.0, vary="q", unit_mean=True),
]
SEEDS = [0, 1, 2**32 - 1, 2**63 - 1, -(2**63)]


def exact(x, c):
    """Return the product as on a CPU, rounded once."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return (x.to(wide) * torch.from_numpy(c).to(wide)).to(x.dtype)


def same(got, expected):
    """Whether all bits are the same, those of zeros and NaN too."""
    assert got.dtype == expected.dtype
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[got.itemsize]
    return torch.equal(got.view(whole), expected.view(whole))


def from_seed(law, shape, seed, level):
    row = table(law).values[int(level < table(law).threshold)]
    return row[cells_of_seed(seed % 2**64, math.prod(shape))].reshape(shape)


def run_seed(x, law, seed, level):
    made, y = tables(law, False, CPU), torch.full_like(x, math.nan)
    given = torch.tensor([seed, level], dtype=torch.int64)
    _launch.multiply_by_seed(x, y, made.values, made.thresholds, given)
    return y


def run_key(x, law, key):
    made, y = tables(law, False, CPU), torch.full_like(x, math.nan)
    own, _, call = key.split(3)
    words = own.word0, own.word1, call.level()
    _launch.multiply_by_key(x, y, made.values, made.thresholds, *words)
    return y


def test_the_model_of_philox_gives_its_published_numbers():
    """Known answers of Philox-4x32-10, from the authors' Random123."""
    answers = {
        (0, 0, 0, 0, 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        (2**64 - 1, *[2**32 - 1] * 4): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        (0x299F31D0A4093822, 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344): (
            0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1,
        ),
    }  # fmt: skip
    for (key, *counter), words in answers.items():
        got = philox4x32(key, [np.array([word], np.uint64) for word in counter])
        assert tuple(int(word[0]) for word in got) == words


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_seed_gives_the_coefficients_of_the_model(shape, dtype):
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    law, (seed, level) = LAWS[0], (SEEDS[3], 12345)
    assert same(run_seed(x, law, seed, level), exact(x, from_seed(law, shape, seed, level)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_key_gives_the_coefficients_of_numpy(shape, dtype):
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    law, key = LAWS[0], quantal.key(2**63 + 12345)
    c = quantal.numpy.coefficients(law, shape, None, key)
    assert same(run_key(x, law, key), exact(x, c))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("offsets", [(1, 0), (0, 1), (3, 2)], ids=str)
def test_addresses_that_are_odd(dtype, offsets):
    """Where units are read and written one by one, in tiles that are full and in the last one."""
    law, key, count = LAWS[0], quantal.key(7), TILE + 5
    made, own, call = tables(law, False, CPU), key.split(3)[0], key.split(3)[2]
    given = torch.randn(count + offsets[0], dtype=torch.float64).to(dtype)
    x, around = given[offsets[0] :], torch.full((count + offsets[1] + 1,), 7.0).to(dtype)
    y = around[offsets[1] : -1]
    seed = torch.tensor([5, 6])
    _launch.multiply_by_seed(x, y, made.values, made.thresholds, seed)
    assert same(y, exact(x, from_seed(law, (count,), 5, 6)))
    words = own.word0, own.word1, call.level()
    _launch.multiply_by_key(x, y, made.values, made.thresholds, *words)
    assert same(y, exact(x, quantal.numpy.coefficients(law, (count,), None, key)))
    assert (around[: offsets[1]] == 7).all()
    assert around[-1] == 7


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_laws_and_seeds(law, seed):
    x = torch.randn(3, 7)
    threshold = table(law).threshold
    # Of 64 random bits, 30 are the level: around the threshold of the second row, and its bounds.
    levels = {level for level in (0, threshold - 1, threshold, LEVELS - 1) if 0 <= level < LEVELS}
    for level, above in itertools.product(levels, (0, 2**40, -(2**62))):
        c = from_seed(law, x.shape, seed, level)
        assert same(run_seed(x, law, seed, level + above), exact(x, c))
    key = quantal.key(seed % 2**64)
    c = quantal.numpy.coefficients(law, tuple(x.shape), None, key)
    assert same(run_key(x, law, key), exact(x, c))


@pytest.mark.parametrize("small", [0, 2**31])
def test_numbers_of_over_31_bits_mean_the_same(small, monkeypatch):
    monkeypatch.setattr(_launch, "_SMALL", small)
    law, key = LAWS[0], quantal.key(7)
    for shape in ((40, 7), (2, 520)):
        x = torch.randn(shape)
        assert same(run_seed(x, law, 5, 6), exact(x, from_seed(law, shape, 5, 6)))
        c = quantal.numpy.coefficients(law, shape, None, key)
        assert same(run_key(x, law, key), exact(x, c))


@pytest.fixture(params=[2**21 + 3, 2**25 - 1, 2**30 + 5])
def far(request, monkeypatch):
    """Let kernels start at a later program; return its number and how to run from there.

    Only what they then touch is in memory: the addresses of tensors are moved back by so much.
    """
    programs, cast = request.param, interpreter._implicit_cvt
    moved = {}

    def program(wide):
        assert wide
        return tl.program_id(0).to(tl.int64) + programs

    def converted(argument):
        made = cast(argument)
        if isinstance(argument, torch.Tensor):
            made.handle.data = made.handle.data - np.uint64(moved.get(argument.data_ptr(), 0))
        return made

    monkeypatch.setattr(_triton_kernels, "_program", program)
    monkeypatch.setattr(interpreter, "_implicit_cvt", converted)
    fixed = {"ALIGNED": False, "WIDE": True, "BY_HAND": False, "LANES": _launch.LANES}

    def run(kernel, x, first, *given, **options):
        y, made = torch.full_like(x, math.nan), tables(LAWS[0], False, CPU)
        moved.update({each.data_ptr(): first * each.itemsize for each in (x, y)})
        kernel[(1,)](x, y, made.values, made.thresholds, *given, **options, **fixed)
        return y

    # Lanes have numbers of up to 32 bits, and of more.
    lane = np.arange(programs * _launch.LANES, (programs + 1) * _launch.LANES, dtype=np.uint64)
    return programs, (lane & np.uint64(2**32 - 1), lane >> np.uint64(32)), run


@pytest.mark.parametrize("missing", [5, 0], ids=["last tile", "full tile"])
def test_a_seed_beyond_2_31_units(far, missing):
    programs, (low, high), run = far
    x, first = torch.randn(TILE - missing), programs * TILE
    seed = torch.tensor([5, LEVELS - 1])
    y = run(_triton_kernels.multiply_by_seed, x, first, seed, first + len(x))
    words = np.stack(philox4x32(5, (low, high, low * 0, low * 0)), -1).astype("<u4")
    cells = words.view("<u2").reshape(-1, 2, 4).swapaxes(0, 1).reshape(-1)[: len(x)]
    assert same(y, exact(x, table(LAWS[0]).values[0, cells]))


@pytest.mark.parametrize("last", [7, None], ids=["rows of 7", "one row"])
def test_a_key_beyond_2_31_units(far, last):
    programs, (low, high), run = far
    blocks = programs * _launch.LANES
    first = blocks // 2 * 7 if last else 4 * blocks  # a row of 7 has two blocks
    x = torch.randn(60 * 7)
    given = 1, 2, LEVELS - 1, first + len(x), last or first + len(x)
    y = run(_triton_kernels.multiply_by_key, x, first, *given, RAGGED=last is not None)
    words = threefry2x32(
        (np.uint32(1), np.uint32(2)), (high.astype("u4"), low.astype("u4")), keys._rotate
    )
    cells = np.stack(words, -1).astype("<u4").view("<u2")
    cells = cells.reshape(-1, 8)[:60, :7] if last else cells
    assert same(y, exact(x, table(LAWS[0]).values[0, cells.reshape(-1)[: len(x)]]))


def test_units_outside_of_a_tensor_are_left_alone():
    made = tables(LAWS[0], False, CPU)
    for shape in ((37,), (5, 7)):
        x, around = torch.randn(shape), torch.full((3, 50), 7.0)
        y = around[1, : x.numel()].view(shape)
        _launch.multiply_by_seed(x, y, made.values, made.thresholds, torch.tensor([1, 2]))
        _launch.multiply_by_key(x, y, made.values, made.thresholds, 1, 2, 3)
        assert not (y == 7).any()
        y.fill_(7.0)
        assert (around == 7).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_that_are_no_numbers_stay_what_they_are(dtype):
    x = torch.tensor([math.nan, math.inf, -math.inf, -0.0, 0.0] * 5).to(dtype)
    c = from_seed(LAWS[0], (25,), 3, 4)
    with np.errstate(invalid="ignore"):  # the interpreter multiplies by NumPy, which warns of 0·∞
        y = run_seed(x, LAWS[0], 3, 4)
    torch.testing.assert_close(y, exact(x, c), rtol=0, atol=0, equal_nan=True)


def test_rounding_by_hand_is_that_of_torch(monkeypatch):
    """As on AMD's devices, for every number of bfloat16, NaN of every kind included."""
    options = {"BY_HAND": True, "num_warps": 1}
    monkeypatch.setattr(_launch, "_options_of_device", lambda device: options)
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.bfloat16)
    for law in LAWS:
        wanted = exact(x, from_seed(law, x.shape, 3, 4))
        with np.errstate(all="ignore"):  # NumPy, which multiplies here, warns of 0·∞ and the like
            got = run_seed(x, law, 3, 4)
        assert torch.equal(got.isnan(), wanted.isnan())
        assert same(got[~got.isnan()], wanted[~got.isnan()])
    x = torch.randn(5, 7).to(torch.bfloat16)
    c = quantal.numpy.coefficients(LAWS[0], (5, 7), None, quantal.key(7))
    assert same(run_key(x, LAWS[0], quantal.key(7)), exact(x, c))
