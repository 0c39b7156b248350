// The law of Quantal Synaptic Dilution, as in quantal.Dilution: its numbers, densities and quantiles.
// A classic script, not a module, so that the page also opens from a file.
"use strict";

const Law = (() => {
  // --- special functions -------------------------------------------------------------------------

  const LANCZOS = [
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
  ];

  function logGamma(x) {
    if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
    let sum = LANCZOS[0];
    for (let i = 1; i < 9; i++) sum += LANCZOS[i] / (x - 1 + i);
    const t = x + 6.5;
    return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
  }

  const logBeta = (a, b) => logGamma(a) + logGamma(b) - logGamma(a + b);

  // The continued fraction of the incomplete beta function, by Lentz's method.
  function fraction(a, b, x) {
    const tiny = 1e-300;
    let c = 1;
    let d = 1 / nonzero(1 - ((a + b) * x) / (a + 1), tiny);
    let h = d;
    for (let m = 1; m < 20000; m++) {
      for (const step of [
        (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
        (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
      ]) {
        d = 1 / nonzero(1 + step * d, tiny);
        c = nonzero(1 + step / c, tiny);
        h *= c * d;
      }
      if (Math.abs(c * d - 1) < 1e-14) break;
    }
    return h;
  }

  const nonzero = (x, tiny) => (Math.abs(x) < tiny ? tiny : x);

  // P(Beta(a, b) ≤ x), given x and y = 1 − x apart: close to 1 only y still has digits.
  function betaCdf(a, b, x, y) {
    if (x <= 0) return 0;
    if (y <= 0) return 1;
    const front = Math.exp(a * Math.log(x) + b * Math.log(y) - logBeta(a, b));
    if (x < (a + 1) / (a + b + 2)) return (front * fraction(a, b, x)) / a;
    return 1 - (front * fraction(b, a, y)) / b;
  }

  const expit = (t) => (t >= 0 ? 1 / (1 + Math.exp(-t)) : Math.exp(t) / (1 + Math.exp(t)));

  // The log-odds of the quantile of Beta(a, b), by bisection; infinite where the quantile is 0 or 1
  // but for less than a float64 can tell.
  function betaLogOdds(a, b, u) {
    let low = -700;
    let high = 700;
    if (u <= betaCdf(a, b, expit(low), expit(-low))) return -Infinity;
    if (u >= betaCdf(a, b, expit(high), expit(-high))) return Infinity;
    for (let i = 0; i < 80; i++) {
      const t = (low + high) / 2;
      if (betaCdf(a, b, expit(t), expit(-t)) < u) low = t;
      else high = t;
    }
    return (low + high) / 2;
  }

  const betaPpf = (a, b, u) => expit(betaLogOdds(a, b, u));

  // --- the law: {rate, alpha, vary, unitMean} -------------------------------------------------------

  // The parameters of the beta distribution of p itself; null where p is fixed.
  function betaOfP({ rate, alpha }) {
    if (alpha > 1e12 || !(rate > 1e-15 && rate < 1)) return null;
    return [alpha, (alpha * rate) / (1 - rate)];
  }

  // Kept coefficients are p·ceiling with p ~ Beta of these; null where they are all alike.
  function betaOfKept(law) {
    const p = law.vary === "p" ? null : betaOfP(law);
    return p && [p[0] + (law.vary === "pq" ? 1 : 0), p[1]];
  }

  function rawMean(law) {
    if (law.vary !== "pq" || !betaOfKept(law)) return 1;
    return (law.alpha + 1) / (law.alpha + 1 - law.rate);
  }

  function moment(law, k) {
    if (law.rate === 1) return 0;
    const retain = 1 - law.rate;
    let value = retain ** (1 - k);
    if (betaOfKept(law)) {
      const last = law.vary === "pq" ? k : k - 1;
      for (let j = 1; j <= last; j++) value *= (law.alpha + j) / (law.alpha + j * retain);
    }
    return law.unitMean ? value / rawMean(law) ** k : value;
  }

  const mean = (law) => moment(law, 1);
  const sd = (law) => Math.sqrt(Math.max(moment(law, 2) - mean(law) ** 2, 0));

  function ceiling(law) {
    if (law.rate === 1) return 0;
    const retain = 1 - law.rate;
    if (!betaOfKept(law)) return 1 / retain;
    return 1 / retain ** 2 / (law.unitMean ? rawMean(law) : 1);
  }

  // The quantile of a kept coefficient, and that of any coefficient.
  function keptPpf(law, u) {
    const kept = betaOfKept(law);
    return ceiling(law) * (kept ? betaPpf(kept[0], kept[1], u) : 1);
  }

  function ppf(law, u) {
    if (u < law.rate || law.rate === 1) return 0;
    return keptPpf(law, (u - law.rate) / (1 - law.rate));
  }

  // --- a cell of the table ---------------------------------------------------------------------------

  const GAUSS = [
    [0.06943184420297371, 0.17392742256872692], [0.33000947820757187, 0.32607257743127307],
    [0.6699905217924281, 0.32607257743127307], [0.9305681557970263, 0.17392742256872692],
  ];
  const ENDS = 32; // cells at either end over which p grows too fast for four points
  const WIDE = 0.1; // and so it does in a cell that spans more log-odds than this
  const SMALLEST = 2 ** -126; // a kept coefficient is never smaller: the smallest normal float32

  // The float32 that quantal's table holds for a kept unit: the mean of the coefficient over cell
  // number `index` of `cells` equal shares of the probability. See src/quantal/_beta_cells.py.
  function cellMean(law, index, cells) {
    const kept = betaOfKept(law);
    const mean = kept ? betaCellMean(kept[0], kept[1], index, cells) : 1;
    return Math.fround(Math.max(ceiling(law) * mean, SMALLEST));
  }

  function betaCellMean(a, b, index, cells) {
    const edges = [index, index + 1].map((edge) => betaLogOdds(a, b, edge / cells));
    const smooth = index >= ENDS && index < cells - ENDS && edges[1] - edges[0] < WIDE;
    if (smooth) return GAUSS.reduce((sum, [at, weight]) => sum + weight * betaPpf(a, b, (index + at) / cells), 0);
    // E[p; a cell] is E[p] times a difference of distribution functions of Beta(a + 1, b). From the
    // nearer end, so that the difference keeps its digits: above one half by 1 − p ~ Beta(b, a).
    if (edges[1] <= 0) return cells * partial(a, b, edges);
    if (edges[0] >= 0) return 1 - cells * partial(b, a, [-edges[1], -edges[0]]);
    const above = betaCdf(b, a, 0.5, 0.5) - (cells - index - 1) / cells;
    return cells * (partial(a, b, [edges[0], 0]) + above - partial(b, a, [-edges[1], 0]));
  }

  function partial(a, b, [from, to]) {
    const below = (t) => betaCdf(a + 1, b, expit(t), expit(-t));
    return (a / (a + b)) * (below(to) - below(from));
  }

  // The alpha at which the mean of QSD is `gain`; NaN where there is none.
  function alphaForGain(rate, gain) {
    if (gain === 1) return Infinity;
    return gain > 1 && gain < 1 / (1 - rate) ? rate / (gain - 1) - (1 - rate) : NaN;
  }

  return {
    betaCdf, betaOfKept, betaOfP, ceiling, cellMean, mean, ppf, keptPpf, sd,
    alphaForGain,
  };
})();
