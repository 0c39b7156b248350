// The page: settings from the controls or the link, and everything that is shown of them.
"use strict";

const $ = (id) => document.getElementById(id);

const PRESETS = {
  "MNIST, perceptron: rate 0.2, α 0.2": { rate: 0.2, alpha: 0.2 },
  "MNIST, LeNet-5: rate 0.1, α 0.2": { rate: 0.1, alpha: 0.2 },
  "CIFAR-10, Wide ResNet: rate 0.1, α 0.2": { rate: 0.1, alpha: 0.2 },
  "Film reviews, LSTM and GRU: rate 0.5, α 1": { rate: 0.5, alpha: 1 },
  "Penn Treebank, medium: rate 0.5, α 5": { rate: 0.5, alpha: 5 },
  "Penn Treebank, large: rate 0.6, α 10": { rate: 0.6, alpha: 10 },
  "Dropout: rate 0.5, α infinite": { rate: 0.5, alpha: Infinity },
};
const OWN = "(settings of your own)";
const DEFAULTS = { rate: 0.2, alpha: 0.2, vary: "pq", unitMean: false, sites: 3, seed: 0 };
const QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95];
const BINS = 60;
const SIDE = 96;

let settings = { ...DEFAULTS };

// --- settings: controls, link, and back --------------------------------------------------------------

const writeNumber = (x) => (x === Infinity ? "inf" : String(x));
const readNumber = (text) => (/^\s*(inf|infinity|∞)\s*$/i.test(text) ? Infinity : text.trim() === "" ? NaN : Number(text));

// What is wrong with some settings, in words; nothing if they are fine.
function complaint({ rate, alpha, sites, seed }) {
  if (!(rate >= 0 && rate <= 1)) return "Rate: a number from 0 to 1.";
  if (!(alpha > 0)) return "α: a number above 0, or inf.";
  if (!(Number.isInteger(sites) && sites >= 1 && sites <= 100)) return "Layers in a row: a whole number from 1 to 100.";
  if (!(Number.isInteger(seed) && seed >= 0 && seed < 2 ** 32)) return "Seed: a whole number from 0 to 4294967295.";
  return "";
}

function fromControls() {
  return {
    rate: readNumber($("rate").value),
    alpha: readNumber($("alpha").value),
    vary: document.querySelector("[name=vary]:checked").value,
    unitMean: $("unit-mean").checked,
    sites: readNumber($("sites").value),
    seed: readNumber($("seed").value),
  };
}

function toControls(but) {
  const set = (id, value) => {
    if ($(id) !== but) $(id).value = value;
  };
  set("rate", settings.rate);
  set("rate-slider", settings.rate);
  set("alpha", writeNumber(settings.alpha));
  set("alpha-slider", Math.log10(Math.min(Math.max(settings.alpha, 0.01), 100)));
  set("sites", settings.sites);
  set("seed", settings.seed);
  document.querySelector(`[name=vary][value=${settings.vary}]`).checked = true;
  $("unit-mean").checked = settings.unitMean;
  // Of two presets with the same numbers, the one that was chosen stays.
  if (!isPreset($("preset").value)) $("preset").value = Object.keys(PRESETS).find(isPreset) ?? OWN;
}

function isPreset(name) {
  const { rate, alpha } = PRESETS[name] ?? {};
  return rate === settings.rate && alpha === settings.alpha && settings.vary === "pq" && !settings.unitMean;
}

function toLink() {
  const fields = new URLSearchParams({
    rate: settings.rate, alpha: writeNumber(settings.alpha), vary: settings.vary,
    unit_mean: settings.unitMean ? 1 : 0, sites: settings.sites, seed: settings.seed,
  });
  return `#${fields}`;
}

function fromLink(hash) {
  const fields = new URLSearchParams(hash.slice(1));
  const number = (name) => (fields.has(name) ? readNumber(fields.get(name)) : DEFAULTS[name]);
  const read = {
    rate: number("rate"), alpha: number("alpha"), sites: number("sites"), seed: number("seed"),
    vary: ["pq", "p", "q"].includes(fields.get("vary")) ? fields.get("vary") : "pq",
    unitMean: fields.get("unit_mean") === "1",
  };
  return complaint(read) ? { ...DEFAULTS } : read;
}

// --- numbers -------------------------------------------------------------------------------------------

// Six significant digits, as `quantal describe` prints them.
function show(x) {
  if (x === Infinity) return "inf";
  if (x === 0) return "0";
  const text = Number(x.toPrecision(6));
  return Math.abs(text) < 1e-4 || Math.abs(text) >= 1e6 ? text.toExponential() : String(text);
}

function rows(law) {
  const beta = law.rate === 0 ? 0 : law.rate === 1 ? Infinity : (law.alpha * law.rate) / (1 - law.rate);
  const mean = Law.mean(law);
  return [
    ["beta", "β", beta],
    ["mean", "mean of c, E[c]", mean],
    ["gain-sites", `mean gain of ${settings.sites} ${settings.sites === 1 ? "layer" : "layers in a row"}`, mean ** settings.sites],
    ["sd", "standard deviation of c", Law.sd(law)],
    ["ceiling", "largest c", Law.ceiling(law)],
    ...QUANTILES.map((u) => [`kept-${u * 100}`, `${u * 100}% quantile of c, kept units`, law.rate === 1 ? 0 : Law.keptPpf(law, u)]),
    ...QUANTILES.map((u) => [`all-${u * 100}`, `${u * 100}% quantile of c, all units`, Law.ppf(law, u)]),
  ];
}

function showNumbers(law, dropout) {
  const other = rows(dropout);
  $("numbers").tBodies[0].replaceChildren(
    ...rows(law).map(([id, name, value], i) => {
      const row = document.createElement("tr");
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = name;
      row.append(head, cell(`value-${id}`, show(value)), cell(`dropout-${id}`, id === "beta" ? "–" : show(other[i][2])));
      return row;
    }),
  );
}

function cell(id, text) {
  const made = document.createElement("td");
  if (id) made.id = id;
  made.textContent = text;
  return made;
}

// --- plots -----------------------------------------------------------------------------------------------

const plots = {};

// The mean density in each interval between edges; without values that have a probability of their own.
function steps(edges, cdf) {
  const density = edges.map((edge, i) => (i ? (cdf(edge) - cdf(edges[i - 1])) / (edge - edges[i - 1]) : 0)).slice(1);
  return [...density, density[density.length - 1]];
}

const grid = (high) => Array.from({ length: BINS + 1 }, (_, i) => (high * i) / BINS);

function curve(beta, at, scale) {
  if (beta) return { cdf: (x) => Law.betaCdf(...beta, Math.min(x / scale, 1), Math.max(1 - x / scale, 0)), atoms: [] };
  return { cdf: () => 0, atoms: [[at, 1]] };
}

function densities(law) {
  const retain = 1 - law.rate;
  const p = law.rate === 1 ? { cdf: () => 0, atoms: [[0, 1]] } : curve(Law.betaOfP(law), retain, 1);
  const varies = law.vary !== "p" && Law.betaOfP(law);
  const most = law.rate === 1 ? 1 : varies ? 1 / retain ** 2 : 1 / retain;
  const q = law.rate === 1 ? { cdf: () => 0, atoms: [[0, 1]] } : curve(varies, 1 / retain, most);
  const kept = Law.betaOfKept(law);
  const ceiling = Law.ceiling(law);
  const all = curve(kept, ceiling, ceiling);
  const c = {
    cdf: (x) => retain * all.cdf(x),
    atoms: [...(law.rate > 0 ? [[0, law.rate]] : []), ...(law.rate < 1 ? all.atoms.map(([x, m]) => [x, m * retain]) : [])],
  };
  return { p: [p, 1], q: [q, most], c: [c, Math.max(ceiling, 1)] };
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function axes() {
  const look = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 0.5 }, ticks: { stroke: colour("--line") }, font: "12px system-ui" };
  const atoms = { ...look, scale: "atoms", side: 1, size: 40, grid: { show: false }, values: (_, splits) => splits };
  const wide = (_, labels) => Math.max(46, 18 + 7 * Math.max(...(labels ?? []).map((label) => label.length)));
  return [{ ...look, size: 34 }, { ...look, size: wide }, atoms];
}

function draw(name, data, series, range) {
  const box = $(`plot-${name}`);
  const width = Math.max(box.clientWidth, 200);
  plots[name]?.destroy();
  const [low, high] = [Math.min(...data[0]), Math.max(...data[0])];
  plots[name] = new uPlot(
    {
      width, height: 190, series: [{}, ...series], legend: { show: false }, cursor: { show: false },
      axes: series.some(({ scale }) => scale === "atoms") ? axes() : axes().slice(0, 2),
      scales: {
        x: { time: false, range: () => [low - (high - low) * 0.02, high + (high - low) * 0.02] },
        y: { range },
        atoms: { range: () => [0, 1.08] },
      },
    },
    data,
    box,
  );
}

function drawDensities(law, dropout) {
  const found = densities(law);
  const other = densities(dropout);
  for (const name of ["p", "q", "c"]) {
    // The largest value is an edge, so that no step reaches beyond it.
    const end = found[name][1];
    const high = name === "p" ? 1 : Math.max(end, other[name][1]) * 1.1;
    const edges = high > end ? [...grid(end), high] : grid(end);
    const points = [...found[name][0].atoms.map(([x, m]) => [x, m, 0]), ...other[name][0].atoms.map(([x, m]) => [x, m, 1])];
    // uPlot wants one list of x for all: steps on the edges, points wherever they are.
    const xs = [...new Set([...edges, ...points.map(([x]) => x)])].sort((a, b) => a - b);
    const at = new Map(steps(edges, found[name][0].cdf).map((mass, i) => [edges[i], mass]));
    let last = 0;
    const line = xs.map((x) => (last = at.has(x) ? at.get(x) : last));
    const dots = [0, 1].map((whose) => xs.map((x) => points.find((point) => point[0] === x && point[2] === whose)?.[1] ?? null));
    const top = Math.max(...line) || 1;
    const [ours, theirs] = [colour("--qsd"), colour("--dropout")];
    const stem = uPlot.paths.bars({ size: [0, 2, 2] });
    const dot = (stroke, size, fill) => ({ scale: "atoms", stroke, fill: stroke, paths: stem, points: { show: true, size, stroke, fill } });
    draw(name, [xs, line, ...dots], [
      { stroke: ours, width: 1.5, fill: `${ours}44`, paths: uPlot.paths.stepped({ align: 1 }) },
      dot(ours, 9, ours),
      dot(theirs, 15, "transparent"),
    ], () => [0, top * 1.08]);
  }
}

function drawGain(law) {
  const rates = Array.from({ length: 96 }, (_, i) => i / 100);
  const gains = rates.map((rate) => Law.mean({ ...law, rate }));
  const xs = [...new Set([...rates, law.rate])].sort((a, b) => a - b);
  const of = new Map(rates.map((rate, i) => [rate, gains[i]]));
  const ours = colour("--qsd");
  // At rate 1 nothing is left: the curve does not lead there.
  const line = xs.map((x) => (x === 1 ? null : (of.get(x) ?? Law.mean({ ...law, rate: x }))));
  draw("gain", [xs, line, xs.map(() => 1), xs.map((x) => (x === law.rate ? Law.mean(law) : null))], [
    { stroke: ours, width: 1.5 },
    { stroke: colour("--dropout"), width: 1.5, dash: [5, 4] },
    { stroke: ours, paths: () => null, points: { show: true, size: 9, fill: ours, stroke: ours } },
  ], () => [0, Math.max(...gains, 1) * 1.1]);
}

// --- coefficients: the picture and the mask ---------------------------------------------------------------

// The coefficient of every kept cell, nearly: fast enough for a picture, and no eye sees the difference.
function table(law, dropped, CELLS) {
  const kept = Law.betaOfKept(law);
  const most = Law.ceiling(law);
  if (!kept || dropped >= CELLS) return () => most;
  // The quantile function on a grid, and straight lines between.
  const nodes = 1024;
  const at = Array.from({ length: nodes + 1 }, (_, i) => Law.keptPpf(law, i / nodes));
  return (index) => {
    const u = ((index - dropped + 0.5) / (CELLS - dropped)) * nodes;
    const i = Math.min(Math.floor(u), nodes - 1);
    return at[i] + (at[i + 1] - at[i]) * (u - i);
  };
}

function coefficients(law, seed, rowCount, columns, exact) {
  if (law.rate === 0) return new Float64Array(rowCount * columns).fill(1);
  const { cells, dropped, CELLS } = Keys.draw(seed, law.rate, rowCount, columns);
  const value = exact ? (index) => Law.cellMean(law, index - dropped, CELLS - dropped) : table(law, dropped, CELLS);
  return Float64Array.from(cells, (index) => (law.rate === 1 || index < dropped ? 0 : value(index)));
}

// A test image in grey: a neuron-like blob with branches, drawn by formula.
function image() {
  const grey = new Float64Array(SIDE * SIDE);
  for (let y = 0; y < SIDE; y++) {
    for (let x = 0; x < SIDE; x++) {
      const [u, v] = [(x - SIDE / 2) / (SIDE / 2), (y - SIDE / 2) / (SIDE / 2)];
      const r = Math.hypot(u, v);
      const angle = Math.atan2(v, u);
      const branches = Math.exp(-((Math.sin(2.5 * angle + 2 * r) * r) ** 2) * 60) * Math.exp(-r * 1.4);
      grey[y * SIDE + x] = Math.min(0.12 + 0.55 * Math.exp(-r * r * 14) + 0.6 * branches, 0.75);
    }
  }
  return grey;
}
const IMAGE = image();

function paint(id, scale) {
  const context = $(id).getContext("2d");
  const pixels = context.createImageData(SIDE, SIDE);
  IMAGE.forEach((grey, i) => {
    const shade = Math.min(255, 255 * grey * scale(i));
    pixels.data.set([shade, shade, shade, 255], 4 * i);
  });
  context.putImageData(pixels, 0, 0);
}

function showPictures(law, dropout) {
  paint("picture-original", () => 1);
  for (const [id, one] of [["picture-dropout", dropout], ["picture-qsd", law]]) {
    const c = coefficients(one, settings.seed, SIDE, SIDE, false);
    paint(id, (i) => c[i]);
  }
}

const [MASK_ROWS, MASK_COLUMNS] = [4, 8];

function showMask(law) {
  $("mask-call").textContent =
    `quantal.dilute(ones((${MASK_ROWS}, ${MASK_COLUMNS})), ${call(law)}, rng=quantal.key(${settings.seed}))`;
  const c = coefficients(law, settings.seed, MASK_ROWS, MASK_COLUMNS, true);
  $("mask").replaceChildren(
    ...Array.from({ length: MASK_ROWS }, (_, row) => {
      const made = document.createElement("tr");
      for (let column = 0; column < MASK_COLUMNS; column++) {
        const value = c[row * MASK_COLUMNS + column];
        const entry = cell("", value === 0 ? "·" : value.toFixed(3));
        entry.dataset.value = value;
        entry.title = value;
        made.append(entry);
      }
      return made;
    }),
  );
}

// --- code ----------------------------------------------------------------------------------------------------

const python = (x) => (x === Infinity ? 'float("inf")' : String(x));

function call({ rate, alpha, vary, unitMean }) {
  const more = (vary === "pq" ? "" : `, vary="${vary}"`) + (unitMean ? ", unit_mean=True" : "");
  return `${python(rate)}, alpha=${python(alpha)}${more}`;
}

function showCode(law) {
  const blocks = {
    PyTorch: `import quantal\n\nlayer = quantal.torch.QSD(${call(law)})`,
    "Keras 3": `import quantal\n\nlayer = quantal.keras.QSD(${call(law)})`,
    "Flax NNX": `import quantal\nfrom flax import nnx\n\nlayer = quantal.jax.nnx.QSD(\n    ${call(law)}, rngs=nnx.Rngs(0)\n)`,
    "Flax Linen": `import quantal\n\nlayer = quantal.jax.linen.QSD(\n    ${call(law)}, deterministic=False\n)`,
    Equinox: `import quantal\n\nlayer = quantal.jax.equinox.QSD(${call(law)})`,
    TensorFlow: `import quantal\nimport tensorflow as tf\n\nx = tf.ones((4, 8))\ny = quantal.tensorflow.dilute(x, ${call(law)})`,
    JAX: `import jax\nimport quantal\n\nx = jax.numpy.ones((4, 8))\nkey = jax.random.key(0)\ny = quantal.jax.dilute(x, ${call(law)}, key=key)`,
    Haiku: `import jax\nimport quantal\n\nx = jax.numpy.ones((4, 8))\nkey = jax.random.key(0)\ny = quantal.jax.haiku.dropout(key, ${call(law).replace(", ", ", x, ")})`,
    "The law itself": `import quantal\n\nlaw = quantal.Dilution(${call(law)})\nprint(law.mean, law.std, law.ceiling)`,
  };
  $("code").replaceChildren(
    ...Object.entries(blocks).map(([name, text]) => {
      const part = document.createElement("div");
      const head = document.createElement("h3");
      head.textContent = name;
      const block = document.createElement("pre");
      const code = document.createElement("code");
      code.textContent = text;
      block.append(code);
      part.append(head, block);
      return part;
    }),
  );
}

// --- the page ------------------------------------------------------------------------------------------------

function showGainHint() {
  const { rate } = settings;
  $("gain-hint").textContent = rate > 0 && rate < 1
    ? `Possible at rate ${show(rate)}: from 1 (dropout) to just below ${show(1 / (1 - rate))}.`
    : "The rate must lie strictly between 0 and 1.";
}

function render(but) {
  const law = settings;
  const dropout = { rate: law.rate, alpha: Infinity, vary: "pq", unitMean: false };
  toControls(but);
  showNumbers(law, dropout);
  drawDensities(law, dropout);
  drawGain(law);
  showPictures(law, dropout);
  showMask(law);
  showCode(law);
  showGainHint();
  history.replaceState(null, "", toLink());
}

function change(wanted, but) {
  const wrong = complaint(wanted);
  $("error").textContent = wrong;
  if (wrong) return;
  settings = wanted;
  render(but);
}

for (const name of [OWN, ...Object.keys(PRESETS)]) $("preset").add(new Option(name));
$("preset").addEventListener("change", () => change({ ...settings, vary: "pq", unitMean: false, ...PRESETS[$("preset").value] }));
$("rate-slider").addEventListener("input", (event) => change({ ...settings, rate: Number(event.target.value) }, event.target));
$("alpha-slider").addEventListener("input", (event) => {
  const alpha = Number((10 ** Number(event.target.value)).toPrecision(2));
  change({ ...settings, alpha }, event.target);
});
for (const id of ["rate", "alpha", "sites", "seed", "unit-mean"]) {
  $(id).addEventListener("input", (event) => change(fromControls(), event.target));
}
for (const radio of document.querySelectorAll("[name=vary]")) radio.addEventListener("change", () => change(fromControls()));
$("set-gain").addEventListener("click", () => {
  const alpha = Law.alphaForGain(settings.rate, Number($("gain").value));
  if (alpha > 0) change({ ...settings, alpha, vary: "pq", unitMean: false });
  else $("error").textContent = `No α gives this gain. ${$("gain-hint").textContent}`;
});
$("copy-link").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(location.href);
    $("copied").textContent = "Copied.";
  } catch {
    $("copied").textContent = "Copy it from the address bar.";
  }
});
$("controls").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", () => change(fromLink(location.hash)));
window.addEventListener("resize", () => render());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => render());
settings = fromLink(location.hash);
render();
