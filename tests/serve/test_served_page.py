"""The page at `/` in a real browser: by mouse and by keyboard, narrow and wide, light and dark, in both languages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import CHROMIUM
from serve.every_kind import every_kind, speaker
from serve.office import docx, entries, run
from serve.serving import Running, wait_until

WHAT = "LEFT OUT: the page of the server in a browser."
pytest.importorskip("playwright.sync_api", reason=f"{WHAT} pip install playwright axe-playwright-python")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason=f"{WHAT} pip install axe-playwright-python")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=f"{WHAT} Get one: apt-get install chromium")
TEXT = "We eat bread in the garden."
VIEWS = ["translate", "generate", "embed", "classify", "label"]
Opener = Callable[..., Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with every_kind(tmp_path_factory.mktemp("kinds")) as server:
        yield server


@pytest.fixture
def open_page(browser: Any, server: Running) -> Iterator[Opener]:
    """Opens the page in a context of its own; at the end no error has been seen and no other host been asked."""
    contexts, problems = [], list[str]()

    def open_(url: str | None = None, *, expected: str = "", **options: Any) -> Any:
        context = browser.new_context(**({"locale": "en-GB"} | options))
        context.set_default_timeout(30_000)
        contexts.append(context)
        page, url = context.new_page(), url or server.url
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: said.type in ("error", "warning") and problems.append(said.text))
        page.on("request", lambda asked: asked.url.startswith((url, "data:")) or problems.append(asked.url))
        page.goto(url)
        page.wait_for_selector(expected or "body[data-ready]")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [problem for problem in problems if "401" not in problem] == []  # a browser notes each 401 by itself


def until(page: Any, expression: str, *arguments: Any) -> None:
    """Waits until an expression is true. Playwright's own way evaluates text in the page, which its policy forbids."""
    wait_until(lambda: page.evaluate(expression, *arguments))


def write(page: Any, text: str = TEXT) -> list[str]:
    """Types a text; returns the words of its translation."""
    page.select_option("#source", "en")
    page.select_option("#target", "fr")
    page.fill("#text", text)
    page.wait_for_selector("#result .word")
    page.wait_for_selector("#result:not([aria-busy])")
    words: list[str] = page.locator("#result .word").all_inner_texts()
    return words


def lights(page: Any) -> list[float]:
    """How strongly each source word is lit."""
    found: list[float] = page.locator("#mirror .light").evaluate_all(
        "nodes => nodes.map(node => +node.style.getPropertyValue('--light'))"
    )
    return found


def findings(page: Any) -> list[str]:
    """What axe finds of serious or critical impact."""
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def test_a_text_is_translated_while_it_is_written(open_page: Opener) -> None:
    page = open_page()
    assert page.evaluate("document.activeElement.id") == "text"
    write(page)
    (best,) = speaker().translate([TEXT])
    assert page.locator("#result").inner_text().strip() == best.text.strip()
    assert page.locator("#alternatives li").count() >= 1
    assert "%" in page.locator("#alternatives .told").first.inner_text()
    page.click("#clear")
    assert page.locator("#result").inner_text() == "" and page.locator("#others").is_hidden()


def test_only_the_last_text_counts_while_typing(open_page: Opener) -> None:
    page = open_page()
    write(page)
    asked: list[str] = []
    page.on("request", lambda r: r.url.endswith("/translate") and asked.append(json.loads(r.post_data)["text"]))
    page.fill("#text", "")
    page.locator("#text").press_sequentially("We eat bread", delay=20)
    page.wait_for_selector("#result .word")
    page.wait_for_selector("#result:not([aria-busy])")
    assert len(asked) < len("We eat bread") / 2 and asked[-1] == "We eat bread"
    (best,) = speaker().translate(["We eat bread"])
    assert page.locator("#result").inner_text().strip() == best.text.strip()


def test_a_request_that_is_overtaken_is_given_up(open_page: Opener) -> None:
    page = open_page()
    write(page)
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(request.failure))
    page.evaluate(
        """() => { const text = document.getElementById('text'), real = window.fetch;
        const type = (value) => { text.value = value; text.dispatchEvent(new Event('input')); };
        window.fetch = (...given) => {
            window.fetch = real;
            const answer = real(...given);
            type('Where?');
            return answer;
        };
        type('We eat.'); }"""
    )
    until(page, "document.getElementById('mirror').textContent.startsWith('Where?')")
    page.wait_for_selector("#result:not([aria-busy])")
    (best,) = speaker().translate(["Where?"])
    assert page.locator("#result").inner_text().strip() == best.text.strip()
    assert failed == ["net::ERR_ABORTED"]


def test_a_word_lights_what_it_looked_at_by_mouse_and_by_keyboard(open_page: Opener, server: Running) -> None:
    page = open_page()
    words = write(page)
    request = {"text": TEXT, "source": "en", "target": "fr", "alternatives": 3}
    (segment,) = server.post("/glassformer/translate", request).json()["segments"]
    weights = segment["words"]["weights"]
    assert len(words) == len(weights) and lights(page) == [0] * 7
    page.hover("#result .word >> nth=1")
    assert lights(page) == pytest.approx([weight / max(weights[1]) for weight in weights[1]], abs=1e-3)
    assert words[1] in page.locator("#looks").inner_text()
    page.hover("h1")
    assert lights(page) == [0] * 7
    page.locator("#result .word").first.focus()
    page.keyboard.press("End")
    assert lights(page) == pytest.approx([weight / max(weights[-1]) for weight in weights[-1]], abs=1e-3)
    assert words[-1] in page.locator("#spoken").inner_text()  # for a screen reader
    page.keyboard.press("Home")
    assert lights(page) == pytest.approx([weight / max(weights[0]) for weight in weights[0]], abs=1e-3)
    page.fill("#text", TEXT + " Yes.")
    page.keyboard.press("Tab")
    assert page.locator("#mirror .light").count() == 0 or lights(page)[0] == 0


def test_lights_stand_behind_their_words_also_after_signs_of_two_units(open_page: Opener) -> None:
    page = open_page()
    write(page, "\U0001f41f We eat\n\U0001f41f bread")
    texts = page.locator("#mirror .light").all_inner_texts()
    assert texts == ["\U0001f41f", "We", "eat", "\U0001f41f", "bread"]
    assert page.evaluate("getComputedStyle(text).fontSize == getComputedStyle(mirror).fontSize")


def test_languages_are_swapped_with_the_text(open_page: Opener) -> None:
    page = open_page()
    write(page)
    made = page.locator("#result").inner_text()
    page.click("#swap")
    assert (page.input_value("#source"), page.input_value("#target")) == ("fr", "en")
    assert page.input_value("#text").strip() == made.strip()


def test_a_text_file_is_taken_and_another_is_refused_in_words(open_page: Opener) -> None:
    page = open_page()
    write(page)
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"We eat\r\nbread."})
    until(page, "document.getElementById('text').value.startsWith('We eat')")
    page.wait_for_selector("#result:not([aria-busy])")
    assert page.input_value("#text") == "We eat\nbread."
    drop = """([name, bytes]) => { const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], name));
        document.getElementById('drop').dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true})); }"""
    page.evaluate(drop, ["b.pdf", [37, 80, 68, 70, 0, 255]])
    page.wait_for_selector("#notice:visible")
    assert "b.pdf" in page.locator("#notice").inner_text()
    page.evaluate(drop, ["c.txt", [*b"A house."]])
    until(page, "document.getElementById('text').value === 'A house.'")
    page.wait_for_selector("#notice", state="hidden")


def test_a_document_comes_back_as_a_file(open_page: Opener) -> None:
    page = open_page()
    write(page)
    page.set_input_files("#file", {"name": "été.docx", "mimeType": "", "buffer": docx(f"<w:p>{run(TEXT)}</w:p>")})
    page.wait_for_selector("#result a")
    assert page.input_value("#text") == "" and page.locator("#others").is_hidden()
    assert findings(page) == []
    with page.expect_download() as download:
        page.click("#result a")
    assert download.value.suggested_filename == "été_fr.docx"
    (best,) = speaker().translate([TEXT])
    assert best.text.strip().encode() in entries(Path(download.value.path()).read_bytes())["word/document.xml"]
    page.fill("#text", TEXT)
    page.wait_for_selector("#result .word")
    assert page.locator("#result a").count() == 0


def test_a_text_that_is_too_long_is_not_sent(open_page: Opener) -> None:
    page = open_page()
    page.on("request", lambda request: pytest.fail(request.url))
    page.fill("#text", "a" * 50_001)
    page.wait_for_timeout(600)  # no other view takes the notice away meanwhile
    assert "50,001" in page.locator("#notice").inner_text()


def test_what_was_translated_is_kept_on_this_machine_until_it_is_cleared(open_page: Opener) -> None:
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    write(page)
    page.click("#copy")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#result").inner_text()
    page.reload()
    page.wait_for_selector("body[data-ready]")
    page.click("#past summary")
    page.click("#entries button")
    assert page.input_value("#text") == TEXT
    page.wait_for_selector("#result .word")
    page.click("#forget")
    assert page.locator("#entries button").count() == 0
    assert page.evaluate("localStorage.getItem('glassformer.history')") is None


def test_why_opens_the_report_beside_it(open_page: Opener) -> None:
    page = open_page(viewport={"width": 1300, "height": 800})
    page.context.set_default_timeout(110_000)
    write(page)
    page.click("#why")
    assert page.locator("#report-state").inner_text() != ""
    frame = page.frame_locator("#report-frame")
    assert frame.locator("h1").inner_text() == TEXT
    assert (
        frame.locator("body").evaluate("() => { try { return parent.document.title } catch { return 'apart' } }")
        == "apart"
    )
    frame.locator('nav a[href="#attention"]').click()
    assert frame.locator("#attention h2").is_visible()
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    assert page.locator("#report-close").bounding_box()["y"] > 0  # the panel stays whole at the end of the page too
    page.locator("#report-close").focus()
    page.keyboard.press("Escape")
    assert page.locator("#report").is_hidden() and page.evaluate("document.activeElement.id") == "why"


def test_a_text_goes_on_from_the_candidate_that_is_chosen(open_page: Opener) -> None:
    page = open_page()
    page.click('nav a[href="#generate"]')
    page.fill("#prompt", "We eat")
    page.fill("#length", "4")
    page.locator("#heat").fill("0")
    page.click("#go")
    page.wait_for_selector("#made .token")
    before = page.locator("#made .token").all_inner_texts()
    page.locator("#made .token").first.focus()
    page.keyboard.press("ArrowRight")
    names = page.locator("#candidates .name").all_inner_texts()
    assert names[0] == before[1].replace(" ", "\u2423")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('#candidates') !== null")
    assert page.locator("#made .token").all_inner_texts() == before  # nothing is chosen by arriving there
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    until(
        page,
        "wanted => document.querySelectorAll('#made .token')[1].textContent.replaceAll(' ', '\u2423') === wanted",
        names[2],
    )
    assert page.locator("#made .token").first.inner_text() == before[0]
    assert page.evaluate("document.activeElement === document.querySelectorAll('#made .token')[1]")


def test_the_end_of_a_text_is_told(open_page: Opener) -> None:
    page = open_page()
    end = {"id": 2, "piece": "</s>", "probability": 0.5, "candidates": []}
    answer = {"text": "", "finish_reason": "eos", "tokens": [end]}
    page.route("**/glassformer/continue", lambda route: route.fulfill(json=answer))
    page.click('nav a[href="#generate"]')
    page.click("#go")
    page.wait_for_selector("#made .token")
    assert page.locator("#made").inner_text() == "</s>The model ended the text here."
    page.unroute("**/glassformer/continue")
    page.fill("#prompt", "We eat")
    page.fill("#length", "1")
    page.locator("#heat").fill("0")
    page.click("#go")
    until(page, "document.getElementById('made').textContent.startsWith('We eat')")
    assert page.locator("#made .ended").count() == 0


def test_texts_are_compared_classified_and_labelled(open_page: Opener) -> None:
    page = open_page()
    page.click('nav a[href="#embed"]')
    page.fill("#first", TEXT)
    assert page.locator("#alike").is_hidden()
    page.fill("#lines", f"Where is the house?\n{TEXT}")
    until(page, "document.querySelectorAll('#likeness li').length === 2")
    assert page.locator("#likeness li").first.inner_text().split("\n")[-1] == "1"
    assert page.locator("#likeness .name").first.inner_text() == TEXT and page.locator("#alike").is_visible()
    page.click('nav a[href="#classify"]')
    page.fill("#class-text", TEXT)
    until(page, "document.querySelectorAll('#classes li').length === 3")
    assert page.locator("#classes .chosen").count() == 1 and page.locator("#second-card").is_hidden()
    page.select_option("#classify select.model", "pairs")
    assert page.locator("#second-card").is_visible()
    page.click('nav a[href="#label"]')
    page.fill("#label-text", TEXT)
    until(page, "document.getElementById('labels').textContent.includes('garden')")
    page.click("#about summary")
    assert page.locator("#models tr").count() == 8


@pytest.mark.parametrize(("width", "scheme", "locale"), [(400, "dark", "fr-FR"), (1200, "light", "en-GB")])
def test_every_view_passes_axe_and_fits(open_page: Opener, width: int, scheme: str, locale: str) -> None:
    page = open_page(viewport={"width": width, "height": 800}, color_scheme=scheme, locale=locale)
    assert page.evaluate("document.documentElement.lang") == locale[:2]
    write(page)
    page.locator("#result .word").first.focus()
    page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
    for view in VIEWS:
        page.evaluate("view => { location.hash = view }", view)
        page.wait_for_selector(f"#{view}:not([hidden])")
        if view == "generate":
            page.fill("#prompt", "We eat")
            page.click("#go")
            page.locator("#made .token").first.focus()
        if view == "label":
            page.fill("#label-text", TEXT)
            until(page, "document.getElementById('labels').textContent !== ''")
        assert findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click("#about summary")
    assert findings(page) == [] and page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_check_for_access_finds_faults(open_page: Opener) -> None:
    page = open_page()
    page.evaluate("document.getElementById('text').removeAttribute('aria-label')")
    page.evaluate("document.getElementById('text').removeAttribute('placeholder')")
    assert any(one.startswith("label:") for one in findings(page))


def test_the_interface_changes_its_language_and_keeps_it(open_page: Opener) -> None:
    page = open_page()
    write(page)
    page.click("#interface")
    assert page.locator("#copy").inner_text() == "Copier" and page.locator("#past summary").inner_text() == "Historique"
    assert page.locator("#target option:checked").inner_text() in ("Français", "Anglais", "Allemand")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate("document.documentElement.lang") == "fr"


def test_both_languages_have_the_same_words(open_page: Opener) -> None:
    source = (Path(__file__).parents[2] / "src/glassformer/serve/page/words.js").read_text(encoding="utf-8")
    page = open_page()
    words = source[source.index("{") : source.index("\n};") + 2]
    english, french, html = page.evaluate(
        f"() => {{ const words = {words}; return [Object.keys(words.en), Object.keys(words.fr), "
        "[...document.querySelectorAll('[data-text],[data-label],[data-hint],[data-title]')]"
        ".flatMap(node => Object.values(node.dataset))]; }"
    )
    assert sorted(english) == sorted(french) and set(html) <= set(english)


def test_a_key_is_asked_for_and_kept_for_the_tab(open_page: Opener, tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("right\n")
    with every_kind(tmp_path, keys=str(keys)) as server:
        page = open_page(server.url, expected="#key-box[open]")
        assert findings(page) == []
        page.fill("#key", "wrong")
        page.keyboard.press("Enter")
        until(page, "document.getElementById('key-why').textContent.includes('not accepted')")
        page.fill("#key", "right")
        page.keyboard.press("Enter")
        page.wait_for_selector("body[data-ready]")
        write(page)
        page.reload()
        page.wait_for_selector("body[data-ready]")
        assert page.evaluate("[sessionStorage.length, localStorage.getItem('glassformer.key')]") == [1, None]
