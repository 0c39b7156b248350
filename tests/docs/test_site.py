"""The site as it was built: it stands by itself, its links lead somewhere, and it fits a phone."""

import os
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
SITE = Path(os.environ.get("QUANTAL_SITE", ROOT / "docs" / "_build" / "site"))
PAGES = sorted(p for p in SITE.rglob("*.html") if "_static" not in p.parts)
MADE = [p for p in PAGES if "explorer" not in p.parts]  # the explorer has tests of its own

# What a browser loads by itself, rather than on a click.
LOADS = {
    "script": "src", "img": "src", "iframe": "src", "embed": "src", "object": "data",
    "audio": "src", "video": "src", "source": "src", "link": "href",
}  # fmt: skip


def name(page):
    return page.relative_to(SITE).as_posix()


@cache
class Parsed(HTMLParser):
    """What a page loads, where it links to, and where it can be linked to."""

    def __init__(self, page):
        super().__init__()
        self.loads, self.links, self.anchors = [], [], set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes[a] for a in ("id", "name") if attributes.get(a)}
        if tag in LOADS and attributes.get(LOADS[tag]):
            self.loads.append(attributes[LOADS[tag]])
        if attributes.get("srcset"):
            self.loads += [part.split()[0] for part in attributes["srcset"].split(",")]
        if tag == "a" and attributes.get("href"):
            self.links.append(attributes["href"])


def elsewhere(address):
    return bool(urlsplit(address).netloc) or urlsplit(address).scheme in {"http", "https", "ftp"}


def test_the_site_has_been_built():
    assert len(PAGES) > 20, "nox -s docs builds it"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_loads_nothing_from_elsewhere(page):
    assert [address for address in Parsed(page).loads if elsewhere(address)] == []
    styles = re.findall(r"<style.*?</style>|style=\"[^\"]*\"", page.read_text(), re.DOTALL)
    assert not any(imported(style) for style in styles)


def imported(style):
    """The addresses that a style sheet loads from elsewhere."""
    found = re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s;]+)", style)
    return [address for address in found if elsewhere(address)]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_does_not_tell_where_it_was_built(page):
    assert str(ROOT) not in page.read_text()


@pytest.mark.parametrize("sheet", sorted(SITE.rglob("*.css")), ids=name)
def test_a_style_sheet_loads_nothing_from_elsewhere(sheet):
    assert imported(sheet.read_text()) == []


@pytest.mark.parametrize("page", MADE, ids=name)
def test_links_of_a_page_lead_somewhere(page):
    for address in Parsed(page).links + Parsed(page).loads:
        parts = urlsplit(address)
        if elsewhere(address) or parts.scheme in {"mailto", "data"}:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        assert target.is_file(), address
        if parts.fragment and target in MADE:
            assert unquote(parts.fragment) in Parsed(target).anchors, address


def test_the_reference_has_the_public_names_and_no_others():
    rows = re.findall(
        r"^\| `(quantal[\w.]*)` \| (.*) \|$", (ROOT / "docs/api.md").read_text(), re.M
    )
    for module, listed in rows:
        text = (SITE / "reference" / f"{module}.html").read_text()
        described = set(re.findall(rf'<dt [^>]*id="{re.escape(module)}\.(\w+)"', text))
        again = set(re.findall(r"<dt><code [^>]*>.*?<span class=\"pre\">(\w+)</span>", text))
        assert described | again == set(re.findall(r"`(\w+)`", listed)), module


@pytest.mark.parametrize("page", sorted(SITE.glob("reference/quantal*.html")), ids=name)
def test_a_public_name_is_described_by_its_own_words(page):
    text = page.read_text()
    assert "<dd></dd>" not in text, "a name without a description"
    assert "Create a new string object" not in text, "the description of Python's own type"
    signatures = re.findall(r'<dt class="sig .*?</dt>', text, re.DOTALL)
    assert not any("&lt;" in signature for signature in signatures), "a default that is no code"


@pytest.fixture
def phone(driver):
    size = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield driver
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


# What reaches beyond the window, and is no part of something that can be scrolled.
CUT_OFF = """
    const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
    const scrolled = e => e.tagName != "ARTICLE" && (scrolls(e) || scrolled(e.parentElement));
    const cut = e => e.getBoundingClientRect().right > innerWidth + 1 && !scrolled(e);
    return [...document.querySelectorAll("article *")].filter(cut).map(e => e.outerHTML.slice(0, 99));
"""


def test_every_page_fits_a_phone_and_asks_no_other_server(phone, served):
    too_wide, asked = {}, set()
    with served(SITE) as address:
        for page in MADE:
            phone.get(f"{address}/{name(page)}")
            width = phone.execute_script("return document.documentElement.scrollWidth")
            if width > 390 or (cut := phone.execute_script(CUT_OFF)):
                too_wide[name(page)] = width if width > 390 else cut
            asked |= set(
                phone.execute_script(
                    "return performance.getEntriesByType('resource').map(entry => entry.name)"
                )
            )
    assert too_wide == {}
    assert [one for one in asked if not one.startswith(f"{address}/")] == []
