"""The explorer in a real browser: its numbers are those of `Dilution`, its masks those of a key."""

import math
import re
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import quantal

PAGE = Path(__file__).parents[2] / "docs" / "explorer" / "index.html"
QUANTILES = (5, 25, 50, 75, 95)

LAWS = [
    {"rate": 0.2, "alpha": 0.2},
    {"rate": 0.1, "alpha": 0.2},
    {"rate": 0.5, "alpha": 1.0},
    {"rate": 0.6, "alpha": 10.0},
    {"rate": 0.5, "alpha": math.inf},
    {"rate": 0.0, "alpha": 1.0},
    {"rate": 1.0, "alpha": 1.0},
    {"rate": 0.95, "alpha": 0.01},
    {"rate": 0.01, "alpha": 100.0},
    {"rate": 0.003, "alpha": 0.3},
    {"rate": 0.35, "alpha": 1000.0},
    {"rate": 0.3, "alpha": 2.0, "vary": "q"},
    {"rate": 0.3, "alpha": 0.05, "vary": "q"},
    {"rate": 0.3, "alpha": 2.0, "vary": "p"},
    {"rate": 0.3, "alpha": 2.0, "unit_mean": True},
    {"rate": 0.7, "alpha": 0.5, "vary": "q", "unit_mean": True},
    {"rate": 0.99, "alpha": 0.001, "vary": "q"},  # quantiles that are 0 in float64
    {"rate": 0.001, "alpha": 1e6},
]


def link(**settings):
    settings = {"alpha": 1.0} | settings
    settings["unit_mean"] = int(settings.get("unit_mean", False))
    return f"{PAGE.as_uri()}#{urlencode(settings)}"


@pytest.fixture
def page(driver):
    def opened(**settings):
        driver.get("about:blank")  # a change after # alone would not load the page anew
        driver.get(link(**settings))
        return driver

    yield opened
    errors = [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"]
    assert errors == []


def number(browser, name):
    return float(browser.find_element(By.ID, f"value-{name}").text)


def expected(law):
    values = {"beta": law.beta, "mean": law.mean, "sd": law.std, "ceiling": law.ceiling}
    for q in QUANTILES:
        values[f"all-{q}"] = float(law.ppf(q / 100))
        kept = law.ppf(law.rate + law.retain * q / 100) if law.rate < 1 else 0
        values[f"kept-{q}"] = float(kept)
    return values


def assert_shows(browser, law):
    for name, value in expected(law).items():
        # Three digits; a deviation that is 0 but for rounding may come out as 0.
        close = pytest.approx(value, rel=5e-4, abs=1e-9 if name == "sd" else 0)
        assert number(browser, name) == close, (name, law)


def set_slider(browser, name, value):
    slider = browser.find_element(By.ID, name)
    browser.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))",
        slider,
        value,
    )


@pytest.mark.parametrize("settings", LAWS, ids=str)
def test_numbers_are_those_of_the_law(page, settings):
    assert_shows(page(**settings), quantal.Dilution(**settings))


@pytest.mark.parametrize("settings", LAWS[:4] + LAWS[-3:], ids=str)
def test_the_plots_show_densities_and_single_values(page, settings):
    law = quantal.Dilution(**settings)
    browser = page(**settings)
    for name in "pqc":
        xs, steps, atoms, _ = browser.execute_script(f"return plots.{name}.data")
        masses = np.array(steps[:-1]) * np.diff(xs)
        atoms = [(x, mass) for x, mass in zip(xs, atoms, strict=True) if mass is not None]
        assert sum(masses) + sum(mass for _, mass in atoms) == pytest.approx(1)
    mean = np.dot(masses, np.convolve(xs, [0.5, 0.5], "valid")) + sum(x * m for x, m in atoms)
    assert mean == pytest.approx(law.mean, abs=np.diff(xs).max() / 2)
    assert dict(atoms)[0] == law.rate


def test_the_curve_of_the_gain_does_not_lead_to_the_zero_of_rate_1(page):
    xs, curve, _, point = page(rate=1, alpha=1).execute_script("return plots.gain.data")
    assert (xs[-1], curve[-1], point[-1]) == (1, None, 0)
    assert min(value for value in curve[:-1]) >= 1


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.95])
@pytest.mark.parametrize("log_alpha", [-2, -0.7, 0.3, 2])
def test_sliders_move_the_numbers(page, rate, log_alpha):
    browser = page(rate=0.2, alpha=0.2)
    set_slider(browser, "rate-slider", rate)
    set_slider(browser, "alpha-slider", log_alpha)
    shown = {
        name: float(browser.find_element(By.ID, name).get_property("value"))
        for name in ("rate", "alpha")
    }
    assert shown["rate"] == rate
    assert shown["alpha"] == pytest.approx(10**log_alpha, rel=0.05)
    assert_shows(browser, quantal.Dilution(**shown))


@pytest.mark.parametrize("settings", LAWS, ids=str)
@pytest.mark.parametrize("seed", [0, 4294967295])
def test_the_mask_is_that_of_a_portable_key(page, settings, seed):
    browser = page(seed=seed, **settings)
    cells = browser.find_elements(By.CSS_SELECTOR, "#mask td")
    shown = np.array([float(c.get_attribute("data-value")) for c in cells]).reshape(4, 8)
    drawn = quantal.dilute(np.ones((4, 8), np.float32), rng=quantal.key(seed), **settings)
    np.testing.assert_array_equal(shown.astype(np.float32), drawn)


def test_masks_of_other_rates_match_too(page):
    # Rates that are no multiples of 2⁻¹⁶ choose between two tables in each call.
    rng = np.random.default_rng(0)
    for seed, rate in enumerate(rng.uniform(0, 1, 20).round(6)):
        browser = page(rate=rate, alpha=1.0, seed=seed)
        cells = browser.find_elements(By.CSS_SELECTOR, "#mask td")
        shown = np.array([float(c.get_attribute("data-value")) for c in cells], np.float32)
        drawn = quantal.dilute(np.ones((4, 8), np.float32), rate, 1.0, rng=quantal.key(seed))
        np.testing.assert_array_equal(shown, drawn.ravel())


def test_the_gain_multiplies_through_the_sites(page):
    browser = page(rate=0.5, alpha=1.0, sites=4)
    gain = quantal.Dilution(0.5, 1.0).mean ** 4
    assert number(browser, "gain-sites") == pytest.approx(gain, rel=5e-4)


def test_alpha_is_found_for_a_wanted_gain(page):
    browser = page(rate=0.5, alpha=1.0)
    field = browser.find_element(By.ID, "gain")
    field.clear()
    field.send_keys("1.25")
    browser.find_element(By.ID, "set-gain").click()
    law = quantal.Dilution.with_mean_gain(0.5, 1.25)
    shown = float(browser.find_element(By.ID, "alpha").get_property("value"))
    assert shown == pytest.approx(law.alpha, rel=1e-9)
    assert_shows(browser, law)


def test_presets_are_the_papers_settings(page):
    browser = page(rate=0.33)
    own, *options = browser.find_elements(By.CSS_SELECTOR, "#preset option")
    assert own.is_selected()
    assert len(options) == 7
    for option in options:
        option.click()
        shown = [browser.find_element(By.ID, n).get_property("value") for n in ("rate", "alpha")]
        rate, alpha = map(float, shown)
        assert f"rate {rate:g}" in option.text
        assert ("α infinite" if alpha == math.inf else f"α {alpha:g}") in option.text
        assert_shows(browser, quantal.Dilution(rate, alpha))


def law_of(layer):
    if hasattr(layer, "dilution"):
        return layer.dilution
    rate = layer.rate if hasattr(layer, "rate") else layer.p  # Equinox says p
    return quantal.Dilution(rate, layer.alpha, vary=layer.vary, unit_mean=layer.unit_mean)


def test_the_code_runs_and_means_these_settings(page):
    settings = {"rate": 0.3, "alpha": 2.0, "vary": "q", "unit_mean": True}
    browser = page(**settings)
    blocks = [b.text for b in browser.find_elements(By.CSS_SELECTOR, "#code pre")]
    assert len(blocks) == 9
    for block in blocks:
        names = {}
        exec(block, names)
        if "y" in names:  # a function, whose settings only its call can tell
            assert names["y"].shape == (4, 8)
            assert re.search(r'0\.3,( x,)? alpha=2, vary="q", unit_mean=True', block), block
            continue
        law = names["law"] if "law" in names else law_of(names["layer"])
        assert law == quantal.Dilution(**settings), block


def test_the_link_holds_the_settings(page):
    browser = page(rate=0.2, alpha=0.2)
    set_slider(browser, "rate-slider", 0.7)
    browser.find_element(By.CSS_SELECTOR, "[name=vary][value=q]").click()
    browser.find_element(By.ID, "unit-mean").click()
    there = browser.current_url
    browser.get("about:blank")
    browser.get(there)
    assert_shows(browser, quantal.Dilution(0.7, 0.2, vary="q", unit_mean=True))


def test_wrong_input_is_told_and_changes_nothing(page):
    browser = page(rate=0.2, alpha=0.2)
    for name, text in (("alpha", "-1"), ("rate", "2"), ("alpha", "x"), ("seed", "-3")):
        field = browser.find_element(By.ID, name)
        before = field.get_property("value")
        field.clear()
        field.send_keys(text)
        assert browser.find_element(By.ID, "error").text != ""
        assert_shows(browser, quantal.Dilution(0.2, 0.2))
        field.clear()
        field.send_keys(before)
        assert browser.find_element(By.ID, "error").text == ""


def test_everything_can_be_done_by_keyboard(page):
    browser = page(rate=0.2, alpha=0.2)
    met = []
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        met.append(browser.switch_to.active_element.get_attribute("id"))
    wanted = ["preset", "rate-slider", "rate", "alpha-slider", "alpha", "unit-mean", "gain"]
    wanted += ["set-gain", "sites", "seed", "copy-link"]
    assert [name for name in met if name in wanted][: len(wanted)] == wanted
    browser.find_element(By.ID, "rate-slider").send_keys(Keys.ARROW_RIGHT)
    assert_shows(browser, quantal.Dilution(0.21, 0.2))


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_window(page, width):
    browser = page(rate=0.2, alpha=0.2)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False},
    )
    try:
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_on_a_phone_the_sliders_stay_above_what_they_change(page):
    browser = page(rate=0.2, alpha=0.2)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        browser.execute_script("document.getElementById('plot-gain').scrollIntoView()")
        for name in ("rate-slider", "alpha-slider"):
            # What is in the middle of the slider, if that is in the window.
            seen = browser.execute_script(
                "const r = document.getElementById(arguments[0]).getBoundingClientRect();"
                "return document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)?.id",
                name,
            )
            assert seen == name
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def contrast(browser, element):
    """Return the contrast of an element's text and the page, by WCAG's formula."""
    colours = browser.execute_script(
        "return [getComputedStyle(arguments[0]).color, getComputedStyle(document.body)"
        ".backgroundColor].map(c => c.match(/[\\d.]+/g).slice(0, 3).map(Number))",
        element,
    )
    linear = [
        [v / 255 / 12.92 if v / 255 <= 0.04045 else ((v / 255 + 0.055) / 1.055) ** 2.4 for v in c]
        for c in colours
    ]
    light, dark = sorted((np.dot(c, [0.2126, 0.7152, 0.0722]) for c in linear), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(page, scheme):
    browser = page(rate=0.2, alpha=0.2)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    try:
        background = browser.execute_script(
            "return getComputedStyle(document.body).backgroundColor"
        )
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")
        for selector in ("h1", "#numbers td", ".hint", "a", ".key.dropout", "#controls label"):
            assert contrast(browser, browser.find_element(By.CSS_SELECTOR, selector)) >= 4.5
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_it_asks_no_other_server_for_anything(driver, served):
    with served(PAGE.parent) as address:
        driver.get(f"{address}/index.html")
        asked = driver.execute_script(
            "return performance.getEntriesByType('resource').map(entry => entry.name)"
        )
    assert len(asked) >= 5
    assert all(name.startswith(f"{address}/") for name in asked)
