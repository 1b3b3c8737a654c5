# SPDX-License-Identifier: Apache-2.0
"""Opens the page at / of a real worker in a headless Chromium: it can be read without JavaScript, used by keys alone,
loads nothing from elsewhere, and renews its figures. PM_SCREENSHOTS=FOLDER keeps pictures of it."""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from browser import Browser

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "parity"))

from server import Server  # noqa: E402

import worker  # noqa: E402

STORIES = ROOT / "examples" / "tiny-stories"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny-stories"
    shutil.copytree(STORIES, folder)
    running = Server(folder, ranks=2)
    yield running
    running.close()


@pytest.fixture
def browser(tmp_path, request):
    window = Browser(tmp_path, **getattr(request, "param", {}))
    yield window
    window.close()


def address(server):
    return f"http://127.0.0.1:{server.port}/"


def keep(browser, name):
    folder = os.environ.get("PM_SCREENSHOTS")
    if folder:
        browser.screenshot(Path(folder) / name)


@pytest.mark.parametrize("browser", [{"javascript": False}], indirect=True)
def test_it_can_be_read_without_javascript(browser, server):
    browser.open(address(server))
    assert browser.text("h1") == "tiny-stories"
    assert browser.text("#state") == "ready"
    drawing = browser.text("#drawing svg")
    assert "rank 0" in drawing and "rank 1" in drawing and "measured" in drawing and "not measured" not in drawing
    assert browser.text("#now").startswith("requests running\n0\nrequests waiting\n0\n")
    assert "needs JavaScript" in browser.text("noscript")
    assert not browser.shown("#ask")


def test_keys_alone_ask_the_model(browser, server):
    browser.open(address(server))
    expected = server.ask("/v1/completions", {"prompt": "One day", "max_tokens": 12, "temperature": 0})
    for _ in range(20):
        browser.press("tab")
        if browser.run("return document.activeElement.id") == "body":
            break
    assert browser.run("return document.activeElement.id") == "body"
    browser.press(("control", "a"))
    browser.press(*'{"prompt": "One day", "max_tokens": 12, "temperature": 0, "stream": true}')
    browser.press(("control", "enter"))
    text = expected["choices"][0]["text"]
    browser.wait(lambda: browser.run("return document.getElementById('answer').textContent") == text)
    browser.press(*"}")
    browser.press(("control", "enter"))
    browser.wait(lambda: '"error"' in browser.text("#answer"))
    severe = [message for message in browser.messages() if "400" not in message]
    assert not severe, severe


def test_its_figures_are_renewed_while_the_answer_stays(browser, server):
    browser.open(address(server))
    before = browser.text("#now")
    browser.run("document.getElementById('answer').textContent = 'mine'")
    server.ask("/v1/completions", {"prompt": "One day", "max_tokens": 4})
    browser.wait(lambda: browser.text("#now") != before)
    assert browser.text("#answer") == "mine"
    keep(browser, "page.png")
    assert not browser.messages()


def test_its_policy_stops_other_scripts(browser, server):
    browser.open(address(server))
    browser.run(
        "const s = document.createElement('script'); s.textContent = 'window.foreign = 1'; document.body.append(s)"
    )
    assert browser.run("return window.foreign") is None
    assert any("Content Security Policy" in message for message in browser.messages())


def test_an_api_key_opens_it(browser, server, tmp_path):
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "me").write_text("ka&<y\n")
    locked = Server(server.folder, ranks=1, options=["--api-keys-dir", tmp_path / "keys"])
    try:
        browser.open(address(locked))
        assert browser.text("h1") == "API key"
        browser.press(*"wrong", "enter")
        browser.wait(lambda: browser.text("#refusal") == "The server does not know this key.")
        browser.press(("control", "a"), *"ka&<y", "enter")
        browser.wait(lambda: browser.text("h1") == "tiny-stories")
        before = browser.text("#now")
        browser.run("document.getElementById('ask').requestSubmit()")
        browser.wait(lambda: browser.run("return document.getElementById('answer').textContent.length > 9"))
        browser.wait(lambda: browser.text("#now") != before)
        assert browser.text("#state") == "ready"
        assert "ka&" not in browser.run("return JSON.stringify([localStorage, sessionStorage, document.cookie])")
    finally:
        locked.close()


@pytest.mark.parametrize("browser", [{"dark": True}], indirect=True)
def test_it_has_dark_colors_for_those_who_want_them(browser, server):
    browser.open(address(server))
    keep(browser, "page-dark.png")
    assert browser.run("return matchMedia('(prefers-color-scheme:dark)').matches")
    fill = browser.run("return getComputedStyle(document.querySelector('#drawing .box')).fill")
    assert fill == "rgb(29, 31, 35)"


def test_plan_svg_draws_what_the_page_shows(server, tmp_path):
    command = [worker.BINARY, "plan", "--model", STORIES, "--devices", "2", "--svg"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    root = ElementTree.fromstring(done.stdout)
    words = [text.text for text in root.iter(SVG + "text")]
    assert [word for word in words if word.startswith("rank ")] == ["rank 0", "rank 1"]
    page = server.get("/").json()
    assert page["model"] == "tiny-stories", "programs still get JSON"
    both = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert both.returncode != 0 and "--json" in both.stderr
