# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, by the WebDriver protocol (https://www.w3.org/TR/webdriver2/) of Debian's chromedriver."""

import base64
import re
import subprocess
import time

import requests

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name of a reference to an element
KEYS = {"tab": "\ue004", "enter": "\ue007", "control": "\ue009"}
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server"]


class Browser:
    """A window of 1,000 x 1,400 pixels. `javascript=False` turns scripts off; `dark` asks pages for dark colors."""

    def __init__(self, folder, *, javascript=True, dark=False):
        command = ["chromedriver", "--port=0", f"--log-path={folder}/chromedriver.log"]
        self.driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        port = next(filter(None, (re.search(r"successfully on port (\d+)", line) for line in self.driver.stdout)))[1]
        self.url = f"http://127.0.0.1:{port}/session"
        arguments = [*ARGUMENTS, "--window-size=1000,1400", f"--user-data-dir={folder}/profile"]
        if dark:
            arguments.append("--force-dark-mode")
        options = {"args": arguments}
        if not javascript:
            options["prefs"] = {"profile.managed_default_content_settings.javascript": 2}
        capabilities = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.url += "/" + self._call("POST", "", capabilities={"alwaysMatch": capabilities})["sessionId"]

    def _call(self, method, path, **body):
        reply = requests.request(method, self.url + path, json=body if method == "POST" else None, timeout=60)
        value = reply.json()["value"]
        assert reply.status_code == 200, value
        return value

    def open(self, url):
        self._call("POST", "/url", url=url)

    def _element(self, selector):
        return self._call("POST", "/element", using="css selector", value=selector)[ELEMENT]

    def text(self, selector):
        """Returns what a reader sees of an element, or of its successor if the page has just replaced it."""
        for attempt in range(5):
            try:
                return self._call("GET", f"/element/{self._element(selector)}/text")
            except AssertionError as error:
                if "stale element" not in str(error) or attempt == 4:
                    raise

    def shown(self, selector):
        return self._call("GET", f"/element/{self._element(selector)}/displayed")

    def press(self, *keys):
        """Presses keys one after the other wherever the focus is; a tuple of keys at the same time."""
        actions = []
        for key in keys:
            held = [KEYS.get(one, one) for one in (key if isinstance(key, tuple) else (key,))]
            actions += [{"type": "keyDown", "value": one} for one in held]
            actions += [{"type": "keyUp", "value": one} for one in reversed(held)]
        self._call("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def run(self, script, *arguments):
        """Returns what a script returns."""
        return self._call("POST", "/execute/sync", script=script, args=list(arguments))

    def messages(self):
        """Returns the warnings and errors that the browser has logged since the last call."""
        entries = self._call("POST", "/se/log", type="browser")
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def screenshot(self, path):
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))

    def wait(self, holds, seconds=30):
        end = time.monotonic() + seconds
        while not (value := holds()):
            assert time.monotonic() < end, f"did not happen in {seconds} s"
            time.sleep(0.1)
        return value

    def close(self):
        try:
            self._call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(30)
