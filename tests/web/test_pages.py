"""Every page in a real browser, as people use it: an engineer, an auditor, somebody who answers a person's request."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mempair_db.demo import customers
from mempair_db.worker.loop import Worker
from tests.web.conftest import HOSTILE, Browser, Picture, Server
from tests.world import World

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")


def sideways(page: Any) -> int:
    """How far the page can be scrolled to the right."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_the_overview_says_how_everything_is(page: Any, company: World, picture: Picture) -> None:
    assert page.locator("table.models tbody tr").count() == 5
    churn = page.locator("tr", has=page.get_by_role("link", name="churn", exact=True))
    assert "predicts" in churn.inner_text()
    churn.locator(".quality a").wait_for()
    assert re.search(r"AUC 0\.[6-9]", churn.inner_text())
    text = page.inner_text("main")
    assert "No worker is running" in text
    assert "Example Ltd, privacy@example.org" in text
    worker = Worker(company.dsn)
    thread = Thread(target=worker.run)
    thread.start()
    try:
        page.get_by_text("No deletion is waiting: every row that was deleted is out of every model.").wait_for()
        page.get_by_text("alive", exact=True).wait_for()
        picture(page, "overview")
    finally:
        worker.stop()
        thread.join()


def test_a_deleted_row_disappears_while_one_looks(page: Any, company: World, picture: Picture) -> None:
    page.get_by_text("live", exact=True).wait_for()
    rows = page.locator("tr", has=page.get_by_role("link", name="churn", exact=True)).locator(".rows")
    before = int(rows.inner_text().replace(",", ""))
    asking = page.context.new_page()
    asking.set_default_timeout(10_000)
    asking.goto(page.url + "request")
    asking.fill("#key", "99")
    asking.keyboard.press("Enter")
    asking.get_by_text("is in mempair_demo.customers, and model churn has learned it").wait_for()
    asking.get_by_text("live", exact=True).wait_for()
    picture(asking, "request-there")
    company("delete from mempair_demo.customers where id = 99")
    page.get_by_text("1 waiting").first.wait_for()
    asking.get_by_text("not every model has forgotten it yet").wait_for()
    page.get_by_text(re.compile(r"^lag [1-9]\d* s, 1 change$")).first.wait_for()
    picture(page, "overview-waiting")
    company.work()
    asking.get_by_text("Nothing of “99” is left in any model here").wait_for()
    page.wait_for_function(
        "n => [...document.querySelectorAll('.models tr')].some(r => r.innerText.startsWith('churn')"
        " && r.querySelector('.rows').innerText.replace(',', '') == n)",
        arg=str(before - 1),
    )
    picture(asking, "request-forgotten")


def test_a_model_shows_weights_curves_and_what_happens_to_it(
    page: Any, numbers: dict[str, int], picture: Picture
) -> None:
    page.get_by_role("link", name="churn", exact=True).click()
    assert page.locator("h1").inner_text() == "churn"
    text = page.inner_text("main")
    for words in ("Predicts churned from age", "95 % interval", "forgotten", "bit for bit"):
        assert words in text
    assert page.locator("svg .whisker, path.whisker").count() > 5
    assert page.locator("figure svg").count() == 3  # age, signed_up, monthly_spend have curves
    assert re.search(r"\b20\d\d\b", page.locator("section", has_text="signed_up").last.locator("svg").text_content())
    picture(page, "model")
    page.get_by_role("link", name="Quality").click()
    assert page.locator("figure svg").count() == 2
    assert "AUC" in page.inner_text("main")
    picture(page, "quality")
    page.goto(page.url.replace(f"/{numbers['churn']}/", f"/{numbers['spend']}/"))
    assert "R²" in page.inner_text("main")
    assert page.locator("figure svg").count() == 1
    page.goto(page.url.replace(f"/{numbers['spend']}/quality", f"/{numbers['certified']}"))
    assert re.search(r"ε = [\d.]+ of 8 spent by \d+ deletions", page.inner_text("main"))
    assert page.get_by_role("img", name=re.compile("ε = ")).count() == 1
    picture(page, "certified")


def test_quality_over_time_is_drawn_once_there_are_two_days(
    page: Any, numbers: dict[str, int], company: World, picture: Picture
) -> None:
    customers.insert(company.sql, customers.invent(5_000, 60))
    company.work()
    page.goto(f"{page.url}model/{numbers['churn']}/quality")
    assert "before they were learned" in page.inner_text("main")
    assert page.locator("figure svg").count() == 2  # one day is no line
    company(
        """insert into mempair.loss_count (model_id, kind, day, epoch, unit, counts)
           select model_id, kind, day - 1, epoch, unit, counts from mempair.loss_count where kind = 'progressive'"""
    )
    page.reload()
    assert page.locator("figure svg").count() == 3
    picture(page, "quality-days")


def test_a_score_is_explained_and_is_the_one_that_sql_gives(
    page: Any, numbers: dict[str, int], company: World, picture: Picture
) -> None:
    page.goto(f"{page.url}model/{numbers['churn']}/score")
    page.locator("[name='value age']").fill("30")
    page.locator("[name='value plan']").fill("basic")
    page.locator("[name='value signed_up']").fill("2024-02-29")
    page.locator("[name='value newsletter']").select_option("false")
    page.get_by_role("button", name="Score this row").click()
    page.locator("#result").wait_for()
    row = {"age": 30, "plan": "basic", "newsletter": False, "signed_up": "2024-02-29"}
    wanted = company.one(
        "select mempair.predict('churn', jsonb_populate_record(null::mempair_demo.customers, %s::jsonb))",
        json.dumps(row),
    )
    assert f"{100 * wanted:.1f} %" in page.inner_text(".score")
    parts = page.locator("#result tbody tr td:nth-child(3)").all_inner_texts()
    added = sum(float(part.replace("−", "-")) for part in parts)
    assert len(parts) == 6
    shown = page.locator("#result tbody tr td:nth-child(2)").all_inner_texts()
    assert shown == ["", "30", "2024-02-29", "missing", "false", "basic"]  # as they were typed
    assert f"{added:.2f}"[:-1] in page.inner_text("#result").replace("−", "-")
    assert page.locator("[name='value plan']").input_value() == "basic"
    picture(page, "score")
    page.locator("[name='value age']").fill("very old")
    page.get_by_role("button", name="Score this row").click()
    page.get_by_text("invalid input syntax for type integer").first.wait_for()


def test_a_model_of_several_classes_is_shown_with_all_of_them(
    page: Any, numbers: dict[str, int], company: World, picture: Picture
) -> None:
    row = page.locator("tr", has=page.get_by_role("link", name="flower", exact=True))
    row.locator(".quality a").wait_for()
    assert "accuracy" in row.inner_text()
    row.get_by_role("link", name="flower", exact=True).click()
    assert "one of several classes" in page.inner_text("main")
    assert set(page.locator("td[data-label=Class]").all_inner_texts()) == {"iris", "rose", "<b>tulip</b>"}
    length = page.locator("section", has=page.get_by_role("heading", name="length", exact=True)).last
    assert length.locator(".legend li").all_inner_texts() == ["<b>tulip</b>", "iris", "rose"]
    assert length.locator("polyline").count() == 3
    picture(page, "classes")
    page.get_by_role("link", name="Quality").click()
    cells = page.locator("table.confusion tbody td").all_inner_texts()
    assert len(cells) == 9
    assert sum(map(int, cells)) == 200
    assert "Calibration" in page.inner_text("main")
    assert "AUC" not in page.inner_text("main")
    picture(page, "classes-quality")
    page.get_by_role("link", name="Score a row").click()
    for name, value in {
        "length": "2.5",
        "seen": "2026-02-01",
        "soil": "clay",
        "light": "sun",
        "petals": "1, 3",
    }.items():
        page.locator(f"[name='value {name}']").fill(value)
    assert page.locator("form.fields input[name^=value]").count() == 5
    page.get_by_role("button", name="Score this row").click()
    page.locator("#result").wait_for()
    wanted = company.execute(
        "select class, probability from mempair_predict_proba('flower',"
        " row(null, 2.5, '2026-02-01', 'clay', 'sun', '{1,3}', null)::flowers)"
    )
    assert wanted[0][0] in page.inner_text(".score")
    shown = page.locator("table.classes td").all_inner_texts()
    assert shown == [f"{100 * probability:.1f} %" for _, probability in wanted]
    assert page.locator("table.parts tbody tr").count() > 3
    picture(page, "classes-score")


def test_events_are_filtered_and_paged(page: Any, numbers: dict[str, int], picture: Picture) -> None:
    page.goto(f"{page.url}model/{numbers['churn']}/events")
    everything = page.locator("tbody tr").count()
    picture(page, "events")
    page.get_by_role("link", name="forgotten", exact=True).click()
    kinds = page.locator("tbody .kind").all_inner_texts()
    assert kinds
    assert set(kinds) == {"forgotten"}
    assert len(kinds) < everything
    page.goto(page.url.partition("?")[0] + "?show=all&before=3")
    assert page.locator("tbody tr").count() == 2


def test_verify_now_shows_progress_and_a_verdict_in_words(
    page: Any, numbers: dict[str, int], company: World, picture: Picture
) -> None:
    page.goto(f"{page.url}model/{numbers['churn']}/verify")
    page.get_by_role("link", name="Verify now").click()
    assert page.locator("h1").inner_text() == "Verify “churn”?"
    page.get_by_role("button", name="Verify churn").click()
    page.get_by_text(re.compile(r"churn is what its [\d,]+ rows make of it, bit for bit")).wait_for()
    assert page.locator("tbody .pill.good").count() >= 4
    picture(page, "verify")
    sums = company.one("select sums from mempair.state where model_id = %s", numbers["spend"])
    company.execute("update mempair.state set sums = set_byte(sums, 0, 1) where model_id = %s", numbers["spend"])
    page.goto(page.url.replace(f"/{numbers['churn']}/verify", f"/{numbers['spend']}/act/verify"))
    page.get_by_role("button", name="Verify spend").click()
    page.get_by_text("spend is NOT what its table makes of it").wait_for()
    picture(page, "verify-wrong")
    company.execute("update mempair.state set sums = %s where model_id = %s", sums, numbers["spend"])


def test_actions_are_confirmed_by_name_and_done(page: Any, numbers: dict[str, int], company: World) -> None:
    home = page.url
    page.goto(f"{home}model/{numbers['spend']}")
    page.get_by_role("link", name="Pause").click()
    assert "Pause “spend”?" in page.inner_text("h1")
    page.get_by_role("button", name="Pause spend").click()
    page.get_by_text("Done: pause of spend").wait_for()
    assert company.one("select status from mempair.model_status where model = 'spend'") == "paused"
    page.get_by_role("link", name="Resume").click()
    page.get_by_role("button", name="Resume spend").click()
    page.get_by_text("Done: resume of spend").wait_for()
    page.get_by_role("link", name="Retrain").click()
    page.get_by_role("button", name="Retrain spend").click()
    page.get_by_text("Done: retrain of spend").wait_for()
    reason = company.one("select retrain_requested from mempair.model where name = 'spend'")
    assert reason == "requested on the page by mempair_owner"
    company.work()


def test_the_audit_verifies_signs_and_gives_files(
    page: Any, numbers: dict[str, int], tmp_path: Path, picture: Picture
) -> None:
    home = page.url
    page.goto(f"{home}model/{numbers['churn']}/act/checkpoint")
    page.get_by_role("button", name="Sign a checkpoint of churn").click()
    page.get_by_text("A checkpoint is signed").wait_for()
    assert page.locator("tr", has_text="db.example.org/").locator(".pill").first.inner_text() == "holds"
    assert page.locator("table.frauds tbody tr").count() >= 15
    assert page.locator("#ledgers .pill.good").count() >= 4
    picture(page, "audit")
    with page.expect_download() as found:
        page.locator("tr", has_text="churn").get_by_role("link", name="export").click()
    found.value.save_as(tmp_path / "export.zip")
    names = zipfile.ZipFile(tmp_path / "export.zip").namelist()
    assert "export/ledger.parquet" in names
    assert not [name for name in names if "rows" in name]
    with page.expect_download() as found:
        page.locator("tr", has_text="churn").get_by_role("link", name="report").click()
    found.value.save_as(tmp_path / "report.html")
    assert "Model churn: forgetting report" in (tmp_path / "report.html").read_text()
    page.locator("#ledgers").get_by_role("link", name="churn", exact=True).first.click()
    page.get_by_text(re.compile("All [0-9]+ entries hold")).wait_for()
    picture(page, "ledger")


def test_hostile_names_and_keys_are_only_text(page: Any, numbers: dict[str, int], home: Path) -> None:
    base = page.url
    number = numbers[HOSTILE]
    for place in ("", *(f"model/{number}{end}" for end in ("", "/quality", "/score", "/events", "/verify"))):
        page.goto(base + place)
        assert HOSTILE in page.inner_text("main"), place
    for place in (f"model/{number}/act/pause", "audit", f"ledger/{number}"):
        page.goto(base + place)
        assert HOSTILE in page.inner_text("main"), place
    page.goto(f"{base}model/{number}/score")
    page.locator("form.fields label input").nth(1).fill("<u>level</u>")
    page.get_by_role("button", name="Score this row").click()
    assert "<u>level</u>" in page.inner_text("#result")
    page.goto(f"{base}request")
    page.fill("#key", "<script>alert(3)</script>")
    page.keyboard.press("Enter")
    page.get_by_text("has learned it").first.wait_for()
    assert "<script>alert(3)</script>" in page.inner_text("main")
    assert page.locator("main script:not([type]), main img, main i, main u").count() == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_narrow_and_dark_screens_show_everything(
    browser: Browser, server: Server, numbers: dict[str, int], dark: bool, picture: Picture
) -> None:
    options = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark" if dark else "light"}
    page = browser.open(**options)
    page.goto(server.link)
    model = f"model/{numbers['churn']}"
    hostile = f"model/{numbers[HOSTILE]}"
    places = ("", model, f"{model}/quality", f"{model}/score", f"{model}/events", hostile, "request", "check", "audit")
    for place in places:
        page.goto(server.address + place)
        assert sideways(page) <= 0, place
        assert (page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)") == dark
        assert page.evaluate(PALEST) >= 4.5, f"text is too pale on {place}"
        picture(page, f"narrow-{'dark' if dark else 'light'}-{place.replace('/', '-') or 'overview'}")
    page.context.close()


PALEST = """(() => {
  const parts = c => c.match(/[\\d.]+/g).map(Number);
  const linear = n => (n /= 255) <= .03928 ? n / 12.92 : ((n + .055) / 1.055) ** 2.4;
  const light = c => { const v = parts(c).slice(0, 3).map(linear);
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const paper = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (parts(c)[3] !== 0) return c; } return 'rgb(255, 255, 255)'; };
  const texts = 'p, td, th, h1, h2, h3, a, button, .pill, .soft, label, figcaption, li, summary';
  const shown = [...document.querySelectorAll(texts)]
    .filter(e => e.innerText && e.offsetParent && !e.closest('svg') && !e.matches(':disabled'));
  return Math.min(...shown.map(e => { const a = light(getComputedStyle(e).color), b = light(paper(e));
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); }));
})()"""


def test_a_keyboard_is_enough(browser: Browser, server: Server, company: World) -> None:
    page = browser.open()
    page.goto(server.link)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Tab")
    visited = []
    for _ in range(30):
        page.keyboard.press("Tab")
        visited.append(page.evaluate("document.activeElement.innerText"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", visited[-1]
        if visited[-1] == "A person's request":
            break
    page.keyboard.press("Enter")
    page.locator("#key").wait_for()
    page.keyboard.type("7")  # the field has the focus
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Show the receipt").first.wait_for()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == "Show the receipt":
            break
    page.keyboard.press("Enter")
    page.locator("#check").wait_for()
    page.locator("[name=key_value]").focus()
    page.keyboard.press("Enter")
    page.get_by_text("This receipt is genuine.").wait_for()
    page.context.close()


def test_the_focus_stays_when_a_page_changes_and_nothing_jumps(page: Any, company: World) -> None:
    page.get_by_text("live", exact=True).wait_for()
    page.locator(".quality a").first.wait_for()
    page.evaluate(
        "window.jumps = 0; new PerformanceObserver(l => l.getEntries().forEach(e => window.jumps += e.value))"
        ".observe({type: 'layout-shift', buffered: false})"
    )
    link = page.get_by_role("link", name="spend", exact=True)
    link.focus()
    company("delete from mempair_demo.customers where id = 120")
    page.get_by_text("1 waiting").first.wait_for()
    assert page.evaluate("document.activeElement.innerText") == "spend"
    company.work()
    page.wait_for_function("() => !document.body.innerText.includes('1 waiting')")
    assert page.evaluate("document.activeElement.innerText") == "spend"
    assert page.evaluate("window.jumps") < 0.1  # what browsers call good


def test_without_the_stream_the_page_asks_by_itself(browser: Browser, server: Server, company: World) -> None:
    page = browser.open()
    page.route("**/live", lambda route: route.abort())
    page.goto(server.link)
    page.get_by_text("not live: trying again").wait_for()
    company("delete from mempair_demo.customers where id = 130")
    page.get_by_text("1 waiting").first.wait_for()
    page.get_by_text("looking every 5 s").wait_for()
    company.work()
    page.wait_for_function("() => !document.body.innerText.includes('1 waiting')")
    page.unroute("**/live")
    page.get_by_text("live", exact=True).wait_for()  # the browser has tried again
    browser.said[:] = [text for text in browser.said if "ERR_FAILED" not in text]  # which it complained about
    page.context.close()


def test_without_a_script_the_page_reloads_itself(browser: Browser, server: Server, company: World) -> None:
    page = browser.open(java_script_enabled=False)
    page.goto(server.link)
    assert page.locator("table.models tbody tr").count() == 5
    with page.expect_event("framenavigated", timeout=15_000):
        pass
    page.goto(f"{server.address}request")
    page.fill("#key", "7")
    page.get_by_role("button", name="Look").click()
    assert "forgotten" in page.inner_text("main")
    page.context.close()
