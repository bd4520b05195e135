"""The page in a real browser, from disk, with the network off: every view by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from explain_models import TEXT, folder

from glassformer.explain import explain
from glassformer.explain.film import read_film
from helpers import CHROMIUM

pytest.importorskip(
    "playwright.sync_api", reason="LEFT OUT: the page in a browser. pip install playwright, apt-get install chromium"
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="LEFT OUT: the page in a browser. Get one: apt-get install chromium"
)
VIEWS = ["walk", "attention", "relevance", "masks", "positions", "search", "why-not", "lenses", "scaling"]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(explain(folder(), TEXT, reference="Nous mangeons du pain.").to_html(), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Any, page_file: Path) -> Iterator[Any]:
    context = browser.new_context(offline=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request", lambda request: None if request.url.startswith(("file:", "data:")) else problems.append(request.url)
    )
    page.goto(page_file.as_uri())
    yield page
    context.close()
    assert problems == []


def test_every_view_is_reached_by_mouse(page: Any) -> None:
    for view in VIEWS:
        page.click(f'nav a[href="#{view}"]')
        assert page.locator(f"#{view} h2").is_visible()
        box = page.locator(f"#{view}").bounding_box()
        assert box is not None and box["y"] < 720  # inside the window
    page.click("#walk details.part:nth-of-type(2) > summary")
    page.click('[id="encoder.1.self.Q"] > summary')
    assert "W_Q" in page.locator('[id="encoder.1.self.Q"]').inner_text()


def test_every_view_is_reached_by_keyboard(page: Any) -> None:
    reached = set()
    for _ in range(3 + len(VIEWS)):
        page.keyboard.press("Tab")
        target = page.evaluate("document.activeElement.getAttribute('href')")
        if target and target.startswith("#"):
            page.keyboard.press("Enter")
            reached.add(target[1:])
            page.locator(f'nav a[href="{target}"]').focus() if page.locator(f'nav a[href="{target}"]').count() else None
    assert reached >= set(VIEWS)
    page.locator("#walk details.part > summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#walk details.part").first.get_attribute("open") is not None


def test_a_matrix_tells_its_numbers_to_pointer_and_arrow_keys(page: Any) -> None:
    page.click("#attention details.part > summary >> nth=0")
    figure = page.locator("#attention svg.matrix").first
    figure.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").is_visible() and page.locator("#tip").inner_text().startswith("query ")
    figure.hover()
    assert ", key " in page.locator("#tip").inner_text()


def test_axes_say_query_and_key(page: Any) -> None:
    for labels in page.locator("#attention svg.matrix").evaluate_all(
        "figures => figures.map(f => [...f.querySelectorAll('.axis')].map(t => t.textContent))"
    ):
        assert labels == ["key →", "query →"]


def test_sub_words_are_joined_on_demand(page: Any) -> None:
    page.click("#attention details.part > summary >> nth=0")
    pieces, words = (page.locator(f"#attention .{name}").first for name in ("by-piece", "by-word"))
    assert pieces.is_visible() and not words.is_visible()
    page.check("#by-word")
    assert words.is_visible() and not pieces.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
def test_without_scripts_everything_can_be_read(browser: Any, page_file: Path, scheme: str, width: int) -> None:
    context = browser.new_context(
        java_script_enabled=False, offline=True, color_scheme=scheme, viewport={"width": width, "height": 900}
    )
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.click("#walk details.part > summary >> nth=1")
    page.click('[id="encoder.1.self.weights"] > summary')
    assert page.locator('[id="encoder.1.self.weights"] svg.matrix').is_visible()
    for view in VIEWS:
        assert page.locator(f"#{view} h2").is_visible()
    context.close()


def test_nothing_is_wider_than_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_one_attention_and_one_head_are_chosen(page: Any) -> None:
    page.select_option("#choose-map", "decoder.1.cross")
    page.select_option("#choose-head", "3")
    shown = page.locator("#attention details[data-map] figure:visible")
    assert shown.count() == 1 and shown.get_attribute("id") == "decoder.1.cross.3"
    assert page.locator("#attention details[data-map]:visible").count() == 1
    page.select_option("#choose-map", "")
    page.select_option("#choose-head", "")
    assert page.locator("#attention details[data-map]:visible").count() == 3


def test_any_head_of_a_step_inside_a_kernel_is_drawn_with_its_numbers(page: Any) -> None:
    page.click("#walk details.part:nth-of-type(6) > summary")
    step = page.locator('[id="decoder.1.self.masked"]')
    step.locator("summary").click()
    figure, before = step.locator("svg.matrix"), step.locator("svg.matrix g").inner_html()
    step.locator("select").select_option("2")
    assert step.locator("svg.matrix g").inner_html() != before
    step.locator("select").select_option("0")
    value = explain(folder(), TEXT).row("decoder.1.self.masked").value[0, 0]
    figure.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip").inner_text().endswith("−∞ (hidden)")
    page.keyboard.press("ArrowDown")
    told = float(page.locator("#tip").inner_text().rpartition(": ")[2])
    assert abs(told - value[1, 1]) < 0.002 * abs(value[value > -1e30]).max() + 0.005 * abs(value[1, 1])


def test_a_film_is_seen_on_its_slider_by_its_dots_and_without_scripts(browser: Any, trained_folder: Path) -> None:
    film = read_film(trained_folder / "runs" / "demo")
    path = trained_folder / "film.html"
    path.write_text(film.to_html(), encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri())
    shown = page.locator(".frame-of-film:visible")
    assert shown.count() == 1 and shown.get_attribute("id") == f"frame-{film.frames[-1].update}"
    page.locator("#slider").focus()
    page.keyboard.press("ArrowLeft")
    assert shown.get_attribute("id") == f"frame-{film.frames[-2].update}"
    page.locator(".curve a").first.click(force=True)
    assert shown.count() == 1 and shown.get_attribute("id") == f"frame-{film.frames[1].update}"
    assert problems == []
    context.close()
    context = browser.new_context(java_script_enabled=False, viewport={"width": 400, "height": 900})
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator(".frame-of-film:visible").count() == len(film.frames)
    context.close()
