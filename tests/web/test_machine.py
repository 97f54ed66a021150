#!/usr/bin/env python3
"""test_machine.py USM_WEB: the section Machine in a browser.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import shutil
import sys

from browser import Page, Server, make_folder


def main():
    folder = make_folder()
    server = Server(sys.argv[1], folder)
    page = Page(server)
    try:
        page.wait("return document.getElementById('machine').dataset.state === 'drawn'", "the devices are drawn")
        page.check(page.texts(".device header b"), "there is a device")
        page.check(any("host:0" in text for text in page.texts(".device header span")), "the host is one")
        page.check(page.texts("#topology .pu"), "there are processors")
        page.wait("return document.querySelector('.pu').style.getPropertyValue('--use') !== ''", "their use is told")
        page.picture("web-machine")
        page.check("token" not in page.browser.current_url, "the address bar has no token")
        page.browser.refresh()
        page.wait("return document.getElementById('link').dataset.state === 'live'", "a reload keeps the token")
        page.browser.execute_script("sessionStorage.clear()")
        page.open("http://" + server.address + "/#token=" + "0" * 32)
        page.wait("return document.getElementById('notices').textContent.includes('token')",
                  "a wrong token is told", faults=4)
    finally:
        page.end()
        server.end()
        shutil.rmtree(folder)
    page.report()


if __name__ == "__main__":
    main()
