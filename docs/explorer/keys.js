// Portable keys, as in quantal.keys: Threefry-2x32, equal to quantal.key(seed) bit for bit.
"use strict";

const Keys = (() => {
  const ROTATIONS = [
    [13, 15, 26, 6],
    [17, 29, 16, 24],
  ];
  const CELLS = 2 ** 16;
  const LEVELS = 2 ** 30;

  const turn = (x, places) => (x << places) | (x >>> (32 - places));

  // The cipher of a 64-bit counter, given as two words: two words.
  function threefry(key, high, low) {
    const schedule = [key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda];
    let x0 = (high + schedule[0]) | 0;
    let x1 = (low + schedule[1]) | 0;
    for (let group = 1; group < 6; group++) {
      for (const places of ROTATIONS[(group - 1) % 2]) {
        x0 = (x0 + x1) | 0;
        x1 = turn(x1, places) ^ x0;
      }
      x0 = (x0 + schedule[group % 3]) | 0;
      x1 = (x1 + schedule[(group + 1) % 3] + group) | 0;
    }
    return [x0 >>> 0, x1 >>> 0];
  }

  // quantal.key(seed), for a seed that is a whole number below 2⁵³.
  const key = (seed) => [Math.floor(seed / 2 ** 32) >>> 0, seed >>> 0];

  // own, shared, call = key.split(3)
  const split = (k) => [0, 1, 2].map((i) => threefry(k, 0, i));

  // One integer out of range(2³⁰).
  function level(k) {
    const [word0, word1] = threefry(k, 0, 0);
    return (word0 ^ word1) >>> 2;
  }

  // 16 random bits a unit: a block serves four neighbours of a row, and each row begins with a new one.
  function indices(k, rows, columns) {
    const cells = new Uint16Array(rows * columns);
    const perRow = Math.ceil(columns / 4);
    for (let row = 0; row < rows; row++) {
      for (let block = 0; block < perRow; block++) {
        const words = threefry(k, 0, row * perRow + block);
        for (let i = 0; i < 4 && 4 * block + i < columns; i++) {
          cells[row * columns + 4 * block + i] = words[i >> 1] >>> (16 * (i & 1));
        }
      }
    }
    return cells;
  }

  // Python's round: a half goes to the even neighbour.
  function roundHalfEven(x) {
    const below = Math.floor(x);
    const over = x - below;
    if (over !== 0.5) return Math.round(x);
    return below % 2 ? below + 1 : below;
  }

  // What dilute(x, …, rng=quantal.key(seed)) draws for a matrix: the cells, and how many of the
  // 65,536 are dropped in this call. A unit is dropped if its cell is below that number.
  function draw(seed, rate, rows, columns) {
    const [own, , call] = split(key(seed));
    const zeros = Math.floor(rate * CELLS);
    const threshold = roundHalfEven((rate * CELLS - zeros) * LEVELS);
    const dropped = zeros + (level(call) < threshold ? 1 : 0);
    return { cells: indices(own, rows, columns), dropped, CELLS };
  }

  return { draw, indices, key, level, split, threefry };
})();
