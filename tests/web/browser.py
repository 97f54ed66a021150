"""What the tests of usm-web share: usm-web over a folder, and a headless Chromium.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SAMPLES = os.path.join(ROOT, "samples", "graphs")


class Server:
    """usm-web over a folder of its own, which ends with the test."""

    def __init__(self, tool, folder, *options, environment=None):
        self.folder = folder
        self.status = None
        self.process = subprocess.Popen(
            [tool, folder, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})})
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError("usm-web: " + self.process.stderr.read())
        self.address, self.token = self.url[len("http://"):].split("/#token=")
        self.port = int(self.address.rsplit(":", 1)[1])

    def request(self, method, path, body=None, token=None, **headers):
        """The status, headers and body; without a token where `token` is ""."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token != "":
            headers["Authorization"] = "Bearer " + (token or self.token)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def json(self, method, path, body=None):
        status, _, text = self.request(method, path, body)
        return status, json.loads(text)

    def end(self):
        """The exit status."""
        if self.status is not None:
            return self.status
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.status = self.process.wait(timeout=30)
        self.process.stdout.close()
        self.process.stderr.close()
        return self.status


def make_folder(*samples):
    """A folder with these files of samples/graphs."""
    folder = tempfile.mkdtemp(prefix="usm-web-test.")
    for name in samples:
        shutil.copy(os.path.join(SAMPLES, name), folder)
    return folder


class Page:
    """The page of a server in a headless Chromium.  Skips the test where there is none."""

    def __init__(self, server, width=1280, height=900):
        try:
            from selenium import webdriver
            from selenium.webdriver.chrome.service import Service
        except ImportError:
            server.end()
            skip("there is no Selenium (Debian: python3-selenium)")
        driver = shutil.which("chromedriver")
        if not driver:
            server.end()
            skip("there is no Chromium to be driven (Debian: chromium-driver)")
        options = webdriver.ChromeOptions()
        self.profile = tempfile.mkdtemp(prefix="usm-web-profile.")
        for option in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                       "--disable-background-networking", "--no-first-run", "--hide-scrollbars",
                       f"--user-data-dir={self.profile}", f"--window-size={width},{height}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.failed = []
        self.server = server
        self.browser = webdriver.Chrome(service=Service(driver), options=options)
        self.open(server.url)

    def open(self, url):
        """Loads it anew, though only what is behind '#' may differ."""
        self.browser.get("about:blank")
        self.browser.get(url)

    def check(self, is_right, what):
        if not is_right:
            self.failed.append(what)
            print("FAILED: " + what)

    def run(self, script, *args):
        return self.browser.execute_script(script, *args)

    def wait(self, script, what, seconds=30, faults=0):
        """Until the script returns something true.  The page may have logged so many faults."""
        deadline = time.monotonic() + seconds
        value = None
        while not value and time.monotonic() < deadline:
            value = self.run(script)
            if not value:
                time.sleep(0.02)
        logged = [e["message"] for e in self.browser.get_log("browser") if e["level"] == "SEVERE"]
        self.check(len(logged) <= faults, f"{what}: the page logged {logged}")
        if not value:
            print(self.run("return document.body.innerText"))
            raise AssertionError(what)
        return value

    def texts(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)

    def picture(self, name):
        """Kept where USM_TEST_KEEP names a folder."""
        if os.environ.get("USM_TEST_KEEP"):
            self.browser.save_screenshot(os.path.join(os.environ["USM_TEST_KEEP"], name + ".png"))

    def end(self):
        self.browser.quit()
        shutil.rmtree(self.profile, ignore_errors=True)

    def report(self):
        print(f"{len(self.failed)} failed")
        sys.exit(bool(self.failed))


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)
