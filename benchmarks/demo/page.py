"""The page of a run: the picture and a chart to explore, in one HTML file that needs no network."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks.demo.flights import BEGIN
from benchmarks.demo.releases import Series

_TEMPLATE = Path(__file__).with_name("page.html")


def write_page(path: Path, picture: Path, airports: Series, destinations: Series, audit: str) -> None:
    """Write the page; ``audit`` is what `eventveil ledger` printed."""
    data = {
        "begin": f"{BEGIN:%Y-%m-%dT%H:%M:%SZ}",
        "audit": audit.strip(),
        "series": [_series(airports, "from"), _series(destinations, "to")],
    }
    page = _TEMPLATE.read_text(encoding="utf-8")
    # Inside a script element only "</" could end the data.
    page = page.replace("__DATA__", orjson.dumps(data).decode().replace("</", "<\\/"))
    page = page.replace("__PICTURE__", base64.b64encode(picture.read_bytes()).decode())
    path.write_text(page, encoding="utf-8")


def _series(series: Series, way: str) -> dict[str, Any]:
    mechanism = series.mechanism
    return {
        "way": way,
        "columns": list(series.columns),
        "mechanism": mechanism.kind.replace("-", " "),
        "epsilon": mechanism.epsilon_text,
        "window": mechanism.window,
        "true": series.truth.T.tolist(),
        "released": series.sanitized.T.tolist(),
        "error": [[None if np.isnan(one) else one for one in column] for column in series.errors.T.tolist()],
        "fresh": [int(fresh) for fresh in series.fresh],
        "spent": [round(float(spent), 3) for spent in series.spent],
    }
