"""The explorer page in a browser."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from clock import HANGS

if TYPE_CHECKING:
    from conftest import Server, Tab

BORDERS = "#/ask?head=France&relation=borders"
VIEWS = (
    "#/ask",
    BORDERS + "&answer=Spain",
    "#/ask?find=relation&head=France&tail=Spain",
    "#/entity?entity=France",
    "#/map?entity=France",
    "#/model",
)
NARROW = {"viewport": {"width": 380, "height": 800}}


# Whether every label of a drawing lies inside it.
INSIDE = """svg => {
  const whole = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('.node rect, .caption text')].map(e => e.getBoundingClientRect()).every(part =>
    part.left >= whole.left - 1 && part.right <= whole.right + 1 &&
    part.top >= whole.top - 1 && part.bottom <= whole.bottom + 1);
}"""


def names(page: Any, within: str) -> list[str]:
    """Return the names in a ranked list."""
    page.wait_for_selector(f"{within}:not([aria-busy]) .ranked")
    script = "rows => rows.map(row => row.firstChild.textContent)"
    return page.locator(f"{within} .answer .name").evaluate_all(script)  # type: ignore[no-any-return]


def until(page: Any, condition: str) -> None:
    """Wait for a condition; the page's policy forbids playwright's own way."""
    end = time.monotonic() + HANGS
    while not page.evaluate(f"Boolean({condition})"):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(30)


def settled(page: Any) -> None:
    """Wait until the page waits for no answer."""
    shown = "location.hash.startsWith('#/' + document.querySelector('nav [aria-current]')?.dataset.view)"
    until(
        page, f"{shown} && !document.querySelector('[aria-busy], .skeleton') && document.querySelector('#main .view')"
    )
    if page.locator(".chart").count():
        page.wait_for_selector(".chart .scatterlayer .trace")


# Ask


def test_a_search_and_a_relation_show_the_servers_answers(tab: Tab, server: Server) -> None:
    page = tab.open()
    page.get_by_role("combobox", name="Head").press_sequentially("fran")
    page.get_by_role("option", name="France", exact=False).first.click()
    page.get_by_role("combobox", name="Relation").click()
    page.get_by_role("option", name="borders").click()
    expected = server.ask("/api/predict", {"head": "France", "relation": "borders", "top": 10})["answers"]
    assert names(page, ".answers") == [one["name"] for one in expected]
    badges = page.locator(".answers .badge").all_inner_texts()
    assert badges == [f"known · {one['known']}" for one in expected if one["known"]]
    assert "head=France" in page.url
    assert "relation=borders" in page.url


@pytest.mark.parametrize(
    ("state", "body"),
    [
        (BORDERS + "&new=1", {"head": "France", "relation": "borders", "new": True}),
        ("#/ask?find=head&relation=speaks&tail=French", {"relation": "speaks", "tail": "French"}),
        ("#/ask?find=relation&head=France&tail=Spain", {"head": "France", "tail": "Spain"}),
        (BORDERS + "&top=25", {"head": "France", "relation": "borders", "top": 25}),
    ],
)
def test_a_link_to_a_question_shows_its_answers(tab: Tab, server: Server, state: str, body: dict[str, Any]) -> None:
    page = tab.open(state)
    found = server.ask("/api/predict", {"top": 10, **body})
    expected = found["answers"]
    assert names(page, ".answers") == [one["name"] for one in expected]
    mixed = len({one["known"] is None for one in expected}) == 2  # a bar can be longer than the one above it
    calibrated = found["answers_are"] in server.ask("/api/models")["models"][0]["calibrated"]
    assert ("calibrated apart" in page.locator(".answers .foot").inner_text()) == (mixed and calibrated)


def test_new_only_hides_known_facts_and_back_shows_them_again(tab: Tab) -> None:
    page = tab.open("#/ask?find=head&relation=on_continent&tail=Europe")
    before = names(page, ".answers")
    page.get_by_label("New only").check()
    until(page, "location.hash.includes('new=1') && !document.querySelector('.answers .badge')")
    page.go_back()
    until(page, "!location.hash.includes('new=1') && document.querySelector('.answers .badge')")
    assert not page.get_by_label("New only").is_checked()
    assert names(page, ".answers") == before


def test_an_explanation_shows_the_same_facts_as_graph_and_list(tab: Tab, server: Server) -> None:
    page = tab.open(BORDERS)
    chosen = names(page, ".answers")[0]
    page.get_by_role("button", name=chosen).click()
    page.wait_for_selector(".why .graph svg")
    why = server.ask("/api/explain", {"head": "France", "relation": "borders", "tail": chosen, "top": 6})
    facts = [" ".join(fact[part]["name"] for part in ("head", "relation", "tail")) for fact in why["facts"]]
    assert page.locator(".why .facts .fact").all_inner_texts() == facts
    ends = {fact[end]["name"] for fact in why["facts"] for end in ("head", "tail")} | {"France", chosen}
    assert set(page.locator(".why .node title").all_text_contents()) == ends
    signs = ["minus" if fact["contribution"] < 0 else "plus" for fact in why["facts"]]
    drawn = page.locator(".why .edge:not(.predicted)").evaluate_all("edges => edges.map(e => e.classList[1])")
    assert drawn == signs
    assert page.locator(".why svg").evaluate(INSIDE)
    page.get_by_role("button", name="Close the explanation").click()
    page.wait_for_selector(".why:not(.open)")


def test_paths_are_drawn_and_listed_with_arrows(tab: Tab, server: Server) -> None:
    asked = {"model": "conditional", "head": "a", "relation": "employs", "tail": "x"}
    why = server.ask("/api/explain", asked)
    page = tab.open("#/ask?model=conditional&head=a&relation=employs&answer=x")
    page.wait_for_selector(".why .graph svg")
    listed = page.locator(".why .facts").first.locator(".fact").all_inner_texts()
    assert [text.replace("\u00a0", " ") for text in listed] == ["a knows → b ← employs x"]
    (path,) = why["paths"]
    drawn = page.locator(".why .edge:not(.predicted)").evaluate_all("edges => edges.map(e => e.classList[1])")
    assert drawn == ["minus" if step["importance"] < 0 else "plus" for step in path["steps"]]
    assert set(page.locator(".why .node title").all_text_contents()) == {"a", "b", "x"}
    assert page.locator(".why svg").evaluate(INSIDE)


def test_an_unknown_entity_or_model_shows_a_sentence(tab: Tab) -> None:
    page = tab.open("#/ask?relation=borders")
    page.get_by_role("combobox", name="Head").fill("Atlantis")
    page.wait_for_selector(".combobox .none")
    page.get_by_role("combobox", name="Head").press("Enter")
    alert = page.get_by_role("alert").filter(has_text="Atlantis")
    assert alert.inner_text().startswith("Unknown entity 'Atlantis'")
    page.goto("/#/entity?entity=Atlantis")
    page.get_by_role("alert").filter(has_text="Atlantis").wait_for()
    page.goto("/#/ask?model=absent")
    page.get_by_role("alert").filter(has_text="no model absent").wait_for()
    page.goto("/#/nowhere?find=x&top=abc&model=")
    page.wait_for_selector(".chips")


# Entity, map, model


def test_a_neighbourhood_links_to_other_entities(tab: Tab, server: Server) -> None:
    page = tab.open("#/entity?entity=France")
    assert names(page, "section[aria-labelledby=similar]") == [
        one["name"] for one in server.ask("/api/similar?entity=France&top=12")["answers"]
    ]
    listed = {
        fact[end]["name"]
        for fact in server.ask("/api/neighbourhood?entity=France&limit=200")["facts"]
        for end in ("head", "tail")
    }
    shown = page.locator(".group .chip").evaluate_all("chips => chips.map(chip => chip.firstChild.textContent)")
    assert set(shown) == listed - {"France"}
    headings = page.locator(".group h3").all_inner_texts()
    assert headings[0].startswith("borders →")
    assert any(text.startswith("← borders") for text in headings)
    page.locator(".graph .node", has_text=shown[0]).first.click()
    page.get_by_role("heading", name=shown[0], level=1).wait_for()
    page.go_back()
    page.get_by_role("heading", name="France", level=1).wait_for()


def test_a_click_chooses_a_point_of_the_map(tab: Tab, server: Server) -> None:
    page = tab.open("#/map")
    page.wait_for_selector(".chart .scatterlayer .trace .points path")
    drawn = page.evaluate("document.querySelector('.chart').data.reduce((n, trace) => n + trace.x.length, 0)")
    assert drawn == len(server.ask("/api/map?limit=5000")["points"])
    last = page.locator(".chart .scatterlayer .trace").nth(-3).locator(".points path").last  # only rings lie above it
    box = last.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hovered = page.locator(".hoverlayer .hovertext text").text_content()
    page.mouse.down()
    page.mouse.up()
    until(page, "location.hash.includes('entity=')")
    page.wait_for_selector(".map h3.name")
    assert page.locator(".map h3.name").inner_text() in hovered
    page.get_by_label("Colour by").select_option("degree")
    page.wait_for_selector(".chart .colorbar")
    page.get_by_role("button", name="Colours").click()  # redraws the chart
    page.wait_for_selector(".chart .colorbar")


def test_the_model_view_shows_the_metrics(tab: Tab, server: Server) -> None:
    page = tab.open("#/model")
    page.wait_for_selector(".chart .scatterlayer .trace")
    metrics = server.ask("/api/models")["models"][0]["metrics"]["test"]
    row = page.get_by_role("row", name=re.compile("^test [0-9]")).inner_text().split()
    assert row[1] == f"{metrics['mrr']:.4f}"


def test_a_name_with_markup_stays_text(tab: Tab) -> None:
    page = tab.open("#/")
    odd = '<img src=x onerror="document.title=1">'
    page.get_by_label("Model").select_option("odd")
    until(page, "location.hash.includes('model=odd')")
    for view in ("entity?model=odd&entity=", "map?model=odd&entity="):
        page.goto(f"/#/{view}{page.evaluate('encodeURIComponent', odd)}")
        settled(page)
        page.get_by_role("heading", name=odd, exact=True).wait_for()
    page.goto(f"/#/ask?model=odd&relation=knows&head={page.evaluate('encodeURIComponent', odd)}&answer=person 1")
    page.wait_for_selector(".why .graph svg")
    assert page.get_by_role("combobox", name="Head").input_value() == odd
    assert page.locator("main img").count() == 0
    assert page.title() != "1"


# The server


def test_the_page_reports_a_dead_server_and_recovers(tab: Tab, server: Server) -> None:
    page = tab.open(BORDERS)
    before = names(page, ".answers")
    server.kill()
    try:
        page.get_by_label("New only").check()
        page.get_by_role("alert").filter(has_text="The server does not answer").wait_for()
        page.get_by_text("Waiting for the server.").wait_for()
    finally:
        server.start()
    page.get_by_role("alert").filter(has_text="The server is back").wait_for()  # without a click
    assert names(page, ".answers") != before
    page.get_by_role("alert").filter(has_text="The server").wait_for(state="hidden")


def test_a_click_repeats_the_request_to_a_busy_server(tab: Tab) -> None:
    busy = {"status": 503, "json": {"detail": "too many questions wait already"}}
    tab.page.route("**/api/predict", lambda route: route.fulfill(**busy))
    page = tab.open(BORDERS)
    page.get_by_role("alert").filter(has_text="Too many questions wait already.").wait_for()
    page.unroute("**/api/predict")
    page.get_by_role("button", name="Try again").click()
    assert len(names(page, ".answers")) == 10


def test_the_page_asks_for_the_key(tab: Tab) -> None:
    def guard(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer open sesame":
            route.continue_()
        else:
            route.fulfill(status=401, json={"detail": "the key is missing or wrong"})

    tab.page.route("**/api/**", guard)
    page = tab.open(BORDERS)
    page.get_by_label("This server needs its API key.").fill("open sesame")
    page.keyboard.press("Enter")
    assert len(names(page, ".answers")) == 10


# Everyone


def test_the_keyboard_is_enough_to_ask_and_explain(tab: Tab) -> None:
    page = tab.open()
    page.wait_for_selector(".chips")
    focused = (
        "document.activeElement.getAttribute('role') === 'combobox' && document.activeElement.labels[0].textContent"
    )
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate(focused) == "Head":
            break
    page.keyboard.type("fran")
    page.locator("li[aria-selected=true]").wait_for()
    active = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).textContent"
    first = page.evaluate(active)
    page.keyboard.press("ArrowDown")
    assert page.evaluate(active) != first
    page.keyboard.press("ArrowUp")
    assert page.evaluate(active) == first
    page.keyboard.press("Escape")
    assert page.get_by_role("listbox").count() == 0
    page.keyboard.type("France")
    page.keyboard.press("Enter")
    until(page, "location.hash.includes('head=France')")
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Relation"
    page.keyboard.press("ArrowDown")
    page.get_by_role("listbox").get_by_role("option").first.wait_for()
    page.keyboard.type("bord")
    page.locator("li[aria-selected=true]").locator("mark").wait_for()
    page.keyboard.press("Enter")
    names(page, ".answers")
    page.keyboard.press("Tab")  # new only
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.querySelector('.rank').textContent") == "2"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector(".why.open .facts")


UNNAMED = """() => [...document.querySelectorAll('button, a[href], input, select, .graph svg, [role=img]')]
  .filter(e => e.getClientRects().length && e.ariaHidden !== 'true' && !e.closest('.chart'))
  .filter(e => !(e.ariaLabel || e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim()))
  .map(e => e.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("tab", [NARROW], indirect=True)
def test_every_view_fits_a_narrow_screen_and_names_its_controls(tab: Tab) -> None:
    page = tab.page
    for view in VIEWS:
        tab.open(view)
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 380, view
        columns = page.locator(".columns").evaluate_all(
            "all => all.map(e => getComputedStyle(e).gridTemplateColumns.split(' ').length)"
        )
        assert set(columns) <= {1}, view
        assert page.evaluate(UNNAMED) == [], view
        assert page.locator("h1").count() == 1, view
        ids = page.locator("main [id]").evaluate_all("all => all.filter(e => !e.closest('svg')).map(e => e.id)")
        assert len(ids) == len(set(ids)), view


CONTRAST = """() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[0-9.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const probe = document.body.appendChild(document.createElement('i'));
  const tone = (name) => { probe.style.color = `var(${name})`; return light(getComputedStyle(probe).color); };
  const pairs = [];
  const compare = (text, ground) => {
    const [a, b] = [tone(text), tone(ground)];
    pairs.push([text, ground, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)]);
  };
  for (const text of ['--text', '--muted', '--accent', '--minus'])
    for (const ground of ['--ground', '--surface', '--raised', '--wash', '--minus-wash']) {
      if (ground === '--minus-wash' && text !== '--text') continue;
      compare(text, ground);
    }
  compare('--on-accent', '--accent');
  const dark = tone('--ground') < .2;
  probe.remove();
  return { pairs, dark };
}"""


@pytest.mark.parametrize(
    "tab", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True, ids=["light", "dark"]
)
def test_colours_have_contrast_and_follow_the_switch(tab: Tab, request: pytest.FixtureRequest) -> None:
    page = tab.open("#/ask")
    settled(page)
    by_system = "dark" if "dark" in request.node.name else "light"
    other = {"dark": "light", "light": "dark"}[by_system]
    seen = page.evaluate(CONTRAST)
    assert seen["dark"] == (by_system == "dark")
    assert [pair for pair in seen["pairs"] if pair[2] < 4.5] == []
    switch = page.get_by_role("button", name="Colours")
    while other not in switch.get_attribute("aria-label"):
        switch.click()
    assert page.evaluate(CONTRAST)["dark"] == (other == "dark")
    page.reload()
    assert page.evaluate(CONTRAST)["dark"] == (other == "dark")


def test_a_model_without_vectors_of_entities_has_no_map_and_no_likeness(tab: Tab) -> None:
    page = tab.open("#/map?model=conditional&entity=c")
    until(page, "location.hash.startsWith('#/entity')")
    settled(page)
    assert page.locator("h1").inner_text() == "c"
    assert page.locator("nav a:visible").all_inner_texts() == ["Ask", "Entity", "Model"]
    assert page.get_by_role("heading", name="Similar entities").count() == 0
    assert page.get_by_text("Show on the map").count() == 0
    assert "null" not in page.locator("main").inner_text()
    tab.open("#/ask?model=conditional&head=c&relation=knows")
    assert len(names(page, ".answers")) == 8  # all but c itself
    tab.open("#/map?model=world&entity=France")
    settled(page)
    assert page.locator("nav a:visible").all_inner_texts() == ["Ask", "Entity", "Map", "Model"]
