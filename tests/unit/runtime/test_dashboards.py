"""The dashboards for Grafana: files that it imports, with panels that do not overlap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

GRAFANA = Path(__file__).parents[3] / "benchmarks" / "grafana"


@pytest.mark.parametrize(("name", "kind"), [("prometheus", "prometheus"), ("influxdb", "influxdb")])
def test_a_dashboard_is_one_that_grafana_imports(name: str, kind: str) -> None:
    board = json.loads((GRAFANA / f"{name}.json").read_text())
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time", "annotations"} <= set(board)
    assert "id" not in board
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in {"timeseries", "stat", "state-timeline", "table"}
        assert panel["datasource"] == {"type": kind, "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert refs
        assert len(set(refs)) == len(refs)
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert [each["name"] for each in board["templating"]["list"]] == ["datasource", "run"]
    assert board["templating"]["list"][0]["query"] == kind
