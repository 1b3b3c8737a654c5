#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the dashboards of the chart as SVG from what a Prometheus has: the panels, in their places, with the results of
their queries. It is for readers of the docs and for those who change a panel; it has no look of Grafana's.

    tools/dashboards.py http://127.0.0.1:9090 SECONDS FOLDER    the last SECONDS, into FOLDER/dashboard-NAME.svg
"""

from __future__ import annotations

import html
import json
import re
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

BOARDS = Path(__file__).resolve().parents[1] / "helm" / "parallelmodel" / "dashboards"
COLUMN, ROW, MARGIN = 40, 26, 8  # pixels; Grafana's grid has 24 columns
COLORS = ["#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f"]
MOST_SERIES = 8
UNITS = {"s": " s", "bytes": "B", "Bps": "B/s", "percentunit": "%", "ops": "/s", "reqps": "/s"}


class Prometheus:
    """The queries of panels; their variables match every pod."""

    def __init__(self, address: str, seconds: int) -> None:
        self.address, self.end, self.step = address, time.time(), max(1, seconds // 120)
        self.begin = self.end - seconds

    def _get(self, path: str, **parameters) -> list[dict]:
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=30) as reply:
            return json.load(reply)["data"]["result"]

    @staticmethod
    def _expand(expression: str) -> str:
        return re.sub(r'=~"\$(namespace|pod)"', '=~".*"', expression).replace("$__rate_interval", "15s")

    def series(self, expression: str) -> list[dict]:
        """Returns [{"metric": labels, "values": [[seconds, value]]}]."""
        return self._get("query_range", query=self._expand(expression), start=self.begin, end=self.end, step=self.step)

    def rows(self, expression: str) -> list[dict]:
        return [one["metric"] for one in self._get("query", query=self._expand(expression))]


def shown(value: float, unit: str) -> str:
    """Returns a value with its unit: 1.5 MiB, 40 %, 12 ms."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s" and 0 < value < 1:
        return f"{1000 * value:.3g} ms"
    if unit in ("bytes", "Bps"):
        for prefix in ("", "Ki", "Mi", "Gi"):
            if value < 1024 or prefix == "Gi":
                return f"{value:.3g} {prefix}{UNITS[unit]}"
            value /= 1024
    return f"{value:.3g}{UNITS.get(unit, '')}"


def text(x: float, y: float, words: str, size: int = 11, color: str = "#374151", more: str = "") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{color}" {more}>{html.escape(words)}</text>'


def legend(target: dict, labels: dict) -> str:
    template = target.get("legendFormat") or ""
    name = re.sub(r"{{\s*(\w+)\s*}}", lambda found: labels.get(found[1], ""), template).strip()
    return name or ", ".join(f"{key}={value}" for key, value in labels.items() if key != "__name__") or "value"


def draw_lines(panel: dict, source: Prometheus, left: float, top: float, width: float, height: float) -> list[str]:
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    found = [(legend(t, one["metric"]), one["values"]) for t in panel["targets"] for one in source.series(t["expr"])]
    lines = [(name, [(float(at), float(value)) for at, value in values if value != "NaN"]) for name, values in found]
    lines = [(name, points) for name, points in lines if points][:MOST_SERIES]
    if not lines:
        return [text(left + width / 2, top + height / 2, "no data", color="#9ca3af", more='text-anchor="middle"')]
    most = max(max(value for _, value in points) for _, points in lines) or 1.0
    bottom, plot = top + height - 30, height - 52
    drawn = [
        f'<path d="M{left} {bottom - plot}H{left + width}M{left} {bottom}H{left + width}" stroke="#e5e7eb"/>',
        text(left, bottom - plot - 3, shown(most, unit), 10, "#6b7280"),
        text(left, bottom - 3, "0", 10, "#6b7280"),
    ]
    place = left
    for number, (name, points) in enumerate(lines):
        color = COLORS[number % len(COLORS)]
        path = " ".join(
            f"{left + width * (at - source.begin) / (source.end - source.begin):.1f},{bottom - plot * value / most:.1f}"
            for at, value in points
        )
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        label = f"{name[:34]} {shown(points[-1][1], unit)}"
        if place + 6 * len(label) < left + width:
            drawn.append(text(place, bottom + 18, label, 10, color))
            place += 6 * len(label) + 10
    return drawn


def draw_table(panel: dict, source: Prometheus, left: float, top: float, width: float, height: float) -> list[str]:
    hidden = {"__name__", "instance", "job"}
    rows = [row for target in panel["targets"] for row in source.rows(target["expr"])]
    labels = [f"{key}: {value}" for row in rows for key, value in sorted(row.items()) if key not in hidden]
    per_column = max(1, int((height - 30) // 16))
    return [
        text(left + (at // per_column) * width / 2, top + 34 + 16 * (at % per_column), one[:46])
        for at, one in enumerate(labels[: 2 * per_column])
    ]


def draw(board: dict, source: Prometheus) -> str:
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    width, height = 24 * COLUMN, rows * ROW + 34
    drawn = [text(MARGIN, 22, board["title"], 16, "#111827", 'font-weight="600"')]
    for panel in board["panels"]:
        at = panel["gridPos"]
        x, y = at["x"] * COLUMN + MARGIN / 2, at["y"] * ROW + 34
        w, h = at["w"] * COLUMN - MARGIN, at["h"] * ROW - MARGIN
        drawn.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="4" fill="#fff" stroke="#d1d5db"/>')
        drawn.append(text(x + 10, y + 17, panel["title"], 12, "#111827", 'font-weight="600"'))
        fill = draw_table if panel["type"] == "table" else draw_lines
        drawn += fill(panel, source, x + 10, y + 14, w - 20, h - 14)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
        f'<rect width="{width}" height="{height}" fill="#f3f4f6"/>{"".join(drawn)}</svg>\n'
    )


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source = Prometheus(sys.argv[1].rstrip("/"), int(sys.argv[2]))
    for path in sorted(BOARDS.glob("*.json")):
        (Path(sys.argv[3]) / f"dashboard-{path.stem}.svg").write_text(draw(json.loads(path.read_text()), source))


if __name__ == "__main__":
    main()
