"""The page in a real browser: headless Chromium, where it is installed."""

from __future__ import annotations

import importlib.resources
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_run import changed, three_phases

from dmr.launcher.report.data import report_data
from dmr.launcher.timeline.analysis import analyse
from dmr.launcher.timeline.sources import read_sources

webdriver: Any = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
axe: Any = pytest.importorskip("axe_core_python", reason="axe-core-python is not installed")
pytest.importorskip("jinja2")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("browser"),
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="there is no Chromium: apt-get install --no-install-recommends chromium chromium-driver",
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    for each in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(each)
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dmr.launcher.report.page import page

    folder = tmp_path_factory.mktemp("page")
    runs = [changed(folder / "a"), three_phases(folder / "b")]
    found = [report_data(analyse(read_sources(each.write()), now=each.clock)) for each in runs]
    (folder / "one.html").write_text(page(found[:1]))
    (folder / "two.html").write_text(page(found))
    return folder


def show(browser: Any, file: Path, width: int, scheme: str = "light", media: str = "screen") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    browser.get(file.as_uri())


def complaints(browser: Any) -> list[Any]:
    source = (importlib.resources.files("axe_core_python") / "axe.min.js").read_text()
    browser.execute_script(source)
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run().then(r => done(r.violations)).catch(e => done([String(e)]))"
    )
    errors = [each for each in found if isinstance(each, str)]
    return errors + [(each["id"], [n["html"][:200] for n in each["nodes"]]) for each in found if each not in errors]


@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_nothing_to_complain_of(browser: Any, page_file: Path, name: str, width: int, scheme: str) -> None:
    show(browser, page_file / f"{name}.html", width, scheme)
    assert complaints(browser) == []
    assert browser.get_log("browser") == []
    inner = "return [document.documentElement.scrollWidth, window.innerWidth]"
    scroll, window = browser.execute_script(inner)
    assert scroll <= window, "the page itself does not scroll sideways"
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    paths = browser.execute_script("return document.querySelectorAll('.plot path').length")
    assert paths > 20, "the charts are drawn"


def test_colours_are_told_apart_from_the_ground_in_both_schemes(browser: Any, page_file: Path) -> None:
    """Graphics need a contrast of 3 (WCAG 2.1, 1.4.11)."""
    script = """
    const style = getComputedStyle(document.documentElement);
    const names = ["--bg", "--held", "--used", "--req", "--good", "--late", "--bad", "--idle",
      ...[0, 1, 2, 3, 4, 5, 6, 7].map((n) => "--p" + n)];
    return names.map((name) => style.getPropertyValue(name).trim());"""

    def luminance(colour: str) -> float:
        digits = colour.lstrip("#")
        digits = "".join(2 * each for each in digits) if len(digits) == 3 else digits
        parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
        linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for scheme in ("light", "dark"):
        show(browser, page_file / "one.html", 1280, scheme)
        ground, *others = (luminance(each) for each in browser.execute_script(script))
        for each in others:
            light, dark = max(each, ground), min(each, ground)
            assert (light + 0.05) / (dark + 0.05) >= 3, scheme


def test_it_is_read_and_zoomed_by_keyboard(browser: Any, page_file: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    show(browser, page_file / "one.html", 1280)
    plot = browser.find_element(By.CSS_SELECTOR, ".plot")
    said = browser.find_element(By.CSS_SELECTOR, ".read")
    shown = browser.find_element(By.CSS_SELECTOR, ".range")
    whole = shown.text
    for _ in range(60):
        if browser.execute_script("return document.activeElement === arguments[0]", plot):
            break
        browser.switch_to.active_element.send_keys(Keys.TAB)
    else:
        pytest.fail("the chart is not reached by Tab")
    plot.send_keys(Keys.HOME, *[Keys.ARROW_RIGHT] * 8)
    assert "held 4 nodes" in said.text and "phase mesh" in said.text
    plot.send_keys("+")
    assert shown.text != whole
    plot.send_keys(Keys.END)
    assert "8 nodes" in said.text or "0 nodes" in said.text
    plot.send_keys("0")
    assert shown.text == whole


def test_it_is_read_and_zoomed_by_mouse(browser: Any, page_file: Path) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    show(browser, page_file / "one.html", 1280)
    plot = browser.find_element(By.CSS_SELECTOR, ".plot")
    shown = browser.find_element(By.CSS_SELECTOR, ".range")
    whole = shown.text
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(browser).move_to_element(plot).perform()
    assert "processors busy" in browser.find_element(By.CSS_SELECTOR, ".read").text
    ActionChains(browser).move_to_element(plot).click_and_hold().move_by_offset(200, 0).release().perform()
    assert shown.text != whole
    browser.find_element(By.CSS_SELECTOR, "button[aria-label^='Show all']").click()
    assert shown.text == whole
    browser.find_element(By.CSS_SELECTOR, "button[aria-label^='Zoom in']").click()
    assert shown.text != whole
    assert browser.get_log("browser") == []


def test_in_print_there_is_no_tool_and_nothing_cut_off(browser: Any, page_file: Path) -> None:
    show(browser, page_file / "one.html", 1000, media="print")
    script = "return [...document.querySelectorAll('.tools')].map(e => getComputedStyle(e).display)"
    assert set(browser.execute_script(script)) == {"none"}
    overflow = "return [...document.querySelectorAll('.scroll')].map(e => getComputedStyle(e).overflowX)"
    assert set(browser.execute_script(overflow)) == {"visible"}
    pdf = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(pdf["data"]) > 20_000


def test_a_picture_of_it_is_no_empty_sheet(browser: Any, page_file: Path, tmp_path: Path) -> None:
    show(browser, page_file / "one.html", 1280)
    assert browser.save_screenshot(str(tmp_path / "page.png"))
    assert (tmp_path / "page.png").stat().st_size > 40_000
