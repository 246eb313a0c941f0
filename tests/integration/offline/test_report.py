"""The report as text, and in a real browser: desktop and phone, light and dark."""

from __future__ import annotations

import html as escaping
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mempair_db.cli import app
from mempair_db.measure import audit, fresh
from mempair_db.offline.export import export
from mempair_db.offline.folder import read
from mempair_db.pages.report import render
from tests.world import SHOP, World

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run", "--hide-scrollbars"),
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed, so the page cannot be looked at")


@pytest.fixture(scope="module")
def page(story: Any) -> str:
    return render(story, audit.audit(story, effort=audit.Effort(leave_out=8, samples=1_000, draws=2)))


class Outline(HTMLParser):
    """Collects what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))


def test_the_page_loads_nothing(page: str) -> None:
    assert "default-src 'none'" in page
    outline = Outline(page)
    assert not {"script", "img", "link", "iframe", "object"} & set(outline.tags)
    assert not [a for _, attributes in outline.attributes for a in attributes if a in ("src", "href")]
    assert "url(" not in page
    assert "http:" not in page.replace("http-equiv", "")
    assert "https:" not in page


def test_every_plot_has_words_and_a_table(page: str) -> None:
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert len(figures) == 7
    for figure in figures:
        label = re.search(r'<svg[^>]*role="img"[^>]*aria-label="([^"]+)"', figure)
        assert label is not None
        assert len(label[1]) > 40
        assert "<figcaption>" in figure
        assert re.search(r"<table.*<td>", figure, re.DOTALL)


def test_the_page_says_what_was_forgotten_and_what_is_open(page: str) -> None:
    for text in (
        "deletions served",
        "Deletions waiting",
        "certified noise",
        "Verdicts",
        "claims that were measured hold.",
    ):
        assert text in page
    assert "the places of the records deleted before it" in page
    assert re.search(r"All \d+ claims that were measured hold\.", page)
    assert re.search(r"the model has accuracy 0\.\d{4} now; computed anew from the same rows it has 0\.\d{4}", page)
    assert re.search(r"From request to done it took .* at most; the deadline is 30 days. None was late.", page)


def test_the_page_holds_no_row_and_no_key(page: str, story: Any) -> None:
    for rows in story.batches(until=200):
        printed = {f"{value:.6g}" for value in rows.x.ravel().tolist()}
        assert not [text for text in printed if text in page and len(text) >= 8]  # a short one may be there by chance


def test_names_cannot_inject_markup(story: Any) -> None:
    row = {**story.row, "name": "<script>alert(1)</script>", "target": "<b>", "features": ["<i>&"], "reason": "<u>"}
    text = render(type(story)(story.folder, row), None)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "Not audited" in text


def test_a_model_without_deletions_and_without_audit_has_a_page_too(shop: Any, tmp_path: Path) -> None:
    model = shop.export(tmp_path / "e", rows=False)
    text = render(model, None)
    assert "Nothing has been deleted so far" in text
    run = CliRunner().invoke(app, ["report", "--from", str(model.folder), "--out", str(tmp_path / "r.html"), "--quick"])
    assert run.exit_code == 5, run.output  # without rows hardly anything is proven
    assert "not measured" in (tmp_path / "r.html").read_text()


def test_a_model_that_has_not_calibrated_has_a_page_too(make_shop: Any, tmp_path: Path) -> None:
    shop = make_shop(rows=20)
    assert "calibrating" in render(shop.export(tmp_path / "e"), None)


@needs_browser
@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_shows_it_without_scrolling_sideways(page: str, tmp_path: Path, width: int, dark: bool) -> None:
    seen = look(page, tmp_path, width, dark)
    assert seen["scroll"] <= seen["inner"] == width
    assert seen["widest"] <= width
    assert seen["plots"] == 7
    assert seen["smallest"] >= 9.0, "text in a plot is too small to read"
    assert seen["contrast"] >= 4.5, "text is too pale"
    assert (seen["paper"] == "rgb(13, 17, 23)") == dark


def look(page: str, tmp_path: Path, width: int, dark: bool) -> dict[str, Any]:
    """Open the page in a frame of that width and measure it there. The copy allows the script that measures."""
    copy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    frame = f'<iframe id=f style="border:0;width:{width}px;height:900px" srcdoc="{escaping.escape(copy)}"></iframe>'
    file = tmp_path / "frame.html"
    file.write_text(
        f'<!doctype html><meta charset="utf-8"><body style="margin:0">{frame}<script>{MEASURE}</script>', "utf-8"
    )
    settings = "--blink-settings=preferredColorScheme=" + ("0" if dark else "1")
    command = [
        *(str(BROWSER), *QUIET, settings, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,1000"),
        *("--virtual-time-budget=3000", "--dump-dom", file.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r"<pre id=\"seen\">(.*?)</pre>", done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2_000:]
    seen: dict[str, Any] = json.loads(escaping.unescape(found[1]))
    return seen


MEASURE = """
document.getElementById('f').addEventListener('load', () => {
  const w = document.getElementById('f').contentWindow, d = w.document;
  const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(n => { n /= 255;
    return n <= .03928 ? n / 12.92 : ((n + .055) / 1.055) ** 2.4; });
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const paper = w.getComputedStyle(d.body).backgroundColor;
  const ratio = e => { const a = light(w.getComputedStyle(e).color), b = light(paper);
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); };
  const svg = [...d.querySelectorAll('svg')];
  const texts = [...d.querySelectorAll('p, td, th, h1, h2, summary, figcaption, .legend li, .verdict')];
  const seen = { inner: w.innerWidth, scroll: d.documentElement.scrollWidth, plots: svg.length, paper,
    widest: Math.max(...svg.map(s => s.getBoundingClientRect().right)),
    smallest: Math.min(...svg.map(s => 13 * s.getBoundingClientRect().width / 480)),
    contrast: Math.min(...texts.map(ratio)) };
  const pre = document.createElement('pre'); pre.id = 'seen'; pre.textContent = JSON.stringify(seen);
  document.body.append(pre);
});
"""


def test_an_exact_model_stands_beside_a_fresh_retrain_too(world: World, tmp_path: Path) -> None:
    world(SHOP, "select mempair.create_model('churn', 'shop', target => 'churned', features => '{age,plan,spend}')")
    world.fill(1, 400)
    world.work()
    world("delete from shop where id <= 20")
    world.work()
    export(world.dsn, tmp_path / "e", rows=True)
    found = fresh.beside(read(tmp_path / "e"))
    assert found is not None
    assert (found.metric, found.rows) == ("accuracy", 380)
    assert 0.5 < found.now <= 1.0
    assert abs(found.now - found.retrained) < 0.05
