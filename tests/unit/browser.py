"""The browser that pages are looked at in."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import Browser, Error, Playwright

#: Debian's name of it, and others'.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: The contrast of each element that has a text of its own with what is behind it (WCAG 2).
CONTRASTS = """() => {
  const parts = colour => colour.match(/[0-9.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = parts(colour).slice(0, 3).map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = one => {
    for (; one; one = one.parentElement) {
      const [r, g, b, a] = parts(getComputedStyle(one).backgroundColor);
      if (a === undefined || a > 0) return `${r} ${g} ${b}`;
    }
    return '255 255 255';
  };
  const texts = [...document.body.querySelectorAll('*')].filter(one =>
      [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()));
  return texts.filter(one => one.tagName !== 'title').map(one => {
    const style = getComputedStyle(one), svg = one.closest('svg');
    const pair = [light(svg ? style.fill : style.color), light(behind(one))].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  });
}"""
#: The texts of pictures that are not in them as a whole, and how many overlap each other.
CUT_OFF = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const whole = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < whole.left - 1 || box.right > whole.right + 1
        || box.top < whole.top - 1 || box.bottom > whole.bottom + 1;
  }).map(text => text.textContent);
})"""
OVERLAPS = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const boxes = [...svg.querySelectorAll('text')].map(one => one.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b =>
      a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom));
}).length"""


def launched(playwright: Playwright) -> Browser:
    """Chromium; the test is skipped, with the reason, where there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        return playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
    except Error as error:
        pytest.skip(f"no browser: install Debian's chromium ({str(error).splitlines()[0]})")
