"""The course as a learner meets it: in a browser, from the first lesson to a solved exercise and a second visit."""

from __future__ import annotations

import json

import pytest

from course_lab.authoring import lessons

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

LESSON, EXERCISES = "work/notebooks/00_start_here.ipynb", "work/exercises/00_start_here.ipynb"
LESSONS = [f"work/notebooks/{lesson.name}.ipynb" for lesson in lessons.all()]
EDITORS = "aria-input-field-name"  # JupyterLab's editors have no name
OURS = [".jp-RenderedHTMLCommon", ".jp-RenderedSVG", ".cm-content"]  # the rest of the page is JupyterLab's
WIDER = """
() => [...document.querySelectorAll('.jp-Notebook .jp-Cell .jp-RenderedHTMLCommon *, .jp-Notebook .jp-RenderedSVG *')]
    .filter(e => e.getBoundingClientRect().right > e.closest('.jp-Cell').getBoundingClientRect().right + 1)
    .filter(e => !e.closest('[style*=overflow], pre, table, svg, .jp-RenderedHTMLCommon > div'))
    .map(e => e.outerHTML.slice(0, 80))
"""


@pytest.mark.parametrize("width", [1366, 1920])
def test_a_lesson_opens_with_its_pictures_and_runs_to_its_end(lab, width):
    lesson = lab(LESSON, width)
    page = lesson.page
    page.wait_for_selector(".jp-StatusBar-Widget, #jp-main-statusbar")
    assert "not trusted" not in page.locator("#jp-main-statusbar").inner_html().lower()
    lesson.menu("Run", "Run All Cells")
    lesson.idle()
    lesson.shot(f"lesson-{width}")
    assert page.locator(".Toastify__toast").count() == 0  # nobody asks a learner about news
    assert lesson.count("error") == 0 and lesson.count("stderr") == 0
    assert page.evaluate(WIDER) == [] and lesson.complaints == []


def test_an_exercise_from_the_first_try_to_the_next_visit(lab, work):
    exercises = lab(EXERCISES)
    notebook = json.loads((work / "exercises" / "00_start_here.ipynb").read_text())
    (stub,) = [
        "".join(cell["source"]) for cell in notebook["cells"] if "".join(cell["source"]).startswith("%%exercise 0.1\n")
    ]
    indent, placeholder = "    ", next(line for line in stub.splitlines() if "# your code here" in line)
    wrong = stub.replace(placeholder, f"{indent}tl.store(y_ptr + offs, 3 * x, mask=mask)")
    exercises.write("%%exercise 0.1", wrong)
    assert "not right yet\nLikely mistake: " in exercises.run("%%exercise 0.1")  # before the import cell was run
    exercises.shot("wrong")

    exercises.write("%%exercise 0.1", wrong.replace("3 * x", "2 * x"))
    assert "right" in exercises.run("%%exercise 0.1").splitlines()[0]
    exercises.shot("right")

    exercises.write("%%exercise 0.3", "%%exercise 0.3\nwhile True:\n    pass")
    cell = exercises.start("%%exercise 0.3")
    cell.get_by_text("0.3: case").wait_for()
    exercises.shot("waiting")
    exercises.menu("Kernel", "Interrupt Kernel")
    exercises.idle()
    assert cell.locator(".jp-OutputArea").first.inner_text().strip() == "Stopped. Nothing was recorded."

    exercises.write("import course_lab", "%stub 0.3")
    count = exercises.page.locator(".jp-Notebook .jp-Cell").count()
    exercises.run("%stub 0.3")
    assert exercises.page.locator(".jp-Notebook .jp-Cell").count() == count + 1
    exercises.write("%stub 0.3", "%hint 0.2")
    assert exercises.run("%hint 0.2").startswith("Hint 1 of 3 for 0.2")
    # Other tests open this file, too.
    exercises.write("%hint 0.2", "import course_lab\nfrom course_lab import progress")
    assert exercises.complaints == []

    exercises.page.keyboard.press("Control+s")
    exercises.page.wait_for_timeout(3000)
    again = lab(EXERCISES)
    assert "Error displaying widget" not in again.page.locator(".jp-Notebook").inner_text()
    assert "0.1" in again.cell("%%exercise 0.1").locator(".jp-OutputArea").first.inner_text()
    saved = (work / "exercises" / "00_start_here.ipynb").read_text()
    assert "widget-view" not in saved and '"name": "stderr"' not in saved


LONGEST = """
() => [...document.querySelectorAll('.jp-RenderedMarkdown > p')].map(p => {
    const lines = {}, range = document.createRange(), walker = document.createTreeWalker(p, NodeFilter.SHOW_TEXT);
    for (let text = walker.nextNode(); text; text = walker.nextNode())
        for (let i = 0; i < text.length; i++) {
            range.setStart(text, i);
            range.setEnd(text, i + 1);
            const box = range.getBoundingClientRect(), line = Math.round(box.bottom / 8);
            if (box.height) lines[line] = (lines[line] || 0) + 1;
        }
    return Math.max(0, ...Object.values(lines));
})
"""


@pytest.mark.parametrize("width", [1366, 1920])
def test_a_page_is_easy_to_read_and_easy_to_find(lab, width):
    lesson = lab("work/notebooks/08_clinic.ipynb", width)
    page = lesson.page
    assert 70 < max(page.evaluate(LONGEST)) < 105  # characters of a line of prose
    link = page.locator(".jp-RenderedMarkdown p a[href*='exercises/08_clinic']").first
    assert "underline" in link.evaluate("a => getComputedStyle(a).textDecorationLine")
    folded = page.locator(".jp-OutputPlaceholder .jp-PlaceholderText").first
    folded.scroll_into_view_if_needed()
    drawn = folded.evaluate("e => [getComputedStyle(e).fontSize, getComputedStyle(e, '::before').content]")
    assert drawn[0] == "0px" and "Your prediction first" in drawn[1]  # its first line would give the answer away
    lesson.shot(f"clinic-{width}")
    link.click()
    page.locator(".lm-TabBar-tab[title*='work/exercises/']").wait_for()
    labels = page.locator(".lm-DockPanel-tabBar .lm-TabBar-tabLabel")
    before = labels.evaluate_all("all => all.map(e => getComputedStyle(e, '::before').content)")
    assert before == ["none", '"Exercises "'] and lesson.complaints == []


def test_a_report_opens_the_field_guide_at_its_entry(lab):
    exercises = lab(EXERCISES)
    exercises.write("%%exercise 0.2", "%%exercise 0.2\nfactor = 2")
    cell = exercises.start("%%exercise 0.2")
    link = cell.locator("a[href*='field_guide.md']").first
    link.wait_for()
    code = link.inner_text()
    link.click()
    entry = exercises.page.locator(f".jp-MarkdownViewer [data-jupyter-id='{code}']")
    entry.wait_for(state="attached")
    exercises.page.wait_for_timeout(2000)
    top = entry.evaluate("e => e.getBoundingClientRect().top")
    assert 0 <= top < 900, f"{code} is not in view"
    assert entry.evaluate("e => e.closest('.jp-MarkdownViewer, .jp-RenderedMarkdown').scrollHeight") > 2000
    exercises.shot("field-guide")
    assert exercises.complaints == []


def test_the_dark_theme_shows_the_same(lab):
    lesson = lab(LESSON)
    lesson.theme("Dark")
    lesson.shot("dark")
    assert lesson.complaints == []


# What is wider than its box, so that it is cut or has to be scrolled; the strips of steps are meant to be.
CUT = """
() => [...document.querySelectorAll('.jp-Notebook :is(.cm-scroller, .course-card, .jp-OutputArea-output, pre)')]
    .filter(e => e.scrollWidth > e.clientWidth + 1 && !e.closest('.course-strip'))
    .map(e => `${e.className || e.tagName} ${e.scrollWidth} > ${e.clientWidth}: ${e.textContent.slice(-60)}`)
"""


@pytest.mark.parametrize("name", [*LESSONS, EXERCISES])
def test_a_whole_page_fits_and_is_accessible_in_both_themes(lab, axe, name):
    lesson = lab(name)
    lesson.whole()
    assert lesson.page.evaluate(CUT) == []
    breaks = lesson.page.locator(".jp-OutputArea-output pre").evaluate_all(
        "all => all.map(e => getComputedStyle(e).wordBreak)"
    )
    assert set(breaks) <= {"normal"}  # no printed line ends in the middle of a word
    for theme in ("Light", "Dark"):
        lesson.theme(theme)
        found = [line for line in lesson.violations(axe, OURS) if not line.startswith(EDITORS)]
        assert found == [], "\n".join([theme, *found])


@pytest.mark.parametrize("name", [lesson.name for lesson in lessons.all()])
def test_definitions_keep_their_lines_and_fit(lab, name):
    exercises = lab(f"work/exercises/{name}.ipynb")
    exercises.whole()
    blocks = exercises.page.locator(".jp-RenderedMarkdown pre > code")
    kept = blocks.evaluate_all("all => all.map(e => getComputedStyle(e).whiteSpace)")
    assert set(kept) <= {"pre", "pre-wrap"}
    assert exercises.page.evaluate(CUT) == []


def test_after_a_restart_the_notebook_runs_and_the_solution_opens_after_three_tries(lab):
    exercises = lab(EXERCISES)
    exercises.menu("Kernel", "Restart Kernel and Clear Outputs")
    exercises.page.locator(".jp-Dialog button.jp-mod-accept").click()
    exercises.idle()
    for factor in (3, 4, 5):
        exercises.write("%%exercise 0.2", f"%%exercise 0.2\nfactor = {factor}")
        assert "not right yet" in exercises.run("%%exercise 0.2")
    exercises.write("import course_lab", "%solution")
    assert "def shift_kernel" in exercises.run("%solution")
    assert exercises.complaints == []


def test_a_carousel_moves_by_arrow_and_by_key(lab, frames_notebook):
    carousel = lab(frames_notebook)
    carousel.run("from gfxlab import draw")
    strip = carousel.page.locator(".course-strip")
    at = lambda: strip.evaluate("e => Math.round(e.scrollLeft / e.firstChild.getBoundingClientRect().width)")  # noqa: E731
    assert at() == 0
    strip.focus()
    for step, key in enumerate(["ArrowRight", "ArrowRight", "ArrowLeft"]):
        carousel.page.keyboard.press(key)
        carousel.page.wait_for_timeout(1200)
        assert at() == [1, 2, 1][step], key
    carousel.shot("carousel")
    box = strip.bounding_box()
    carousel.page.mouse.click(
        box["x"] + 46, box["y"] + box["height"] + 14
    )  # the button that the browser draws below it
    carousel.page.wait_for_timeout(1200)
    assert at() == 2 and carousel.complaints == []
