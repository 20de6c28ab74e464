"""Alert rules and the Grafana dashboard: real queries, over metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from click.testing import CliRunner

from rota import Rota
from rota.cli.main import cli
from rota.client import alert_rules, grafana_dashboard, metrics
from rota.core.process_metrics import PROCESS_METRICS
from tests.http.kit import browsing
from tests.kit.prometheus_parser import parse

VARIABLES = {"$__rate_interval": "5m", "$namespace": ".*"}


def plain(query: str) -> str:
    """A query of the dashboard, with its variables filled in."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def queries() -> Iterator[tuple[str, str]]:
    for rule in alert_rules.document(5)["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]
    for panel in grafana_dashboard.document()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], plain(target["expr"])


QUERIES = list(queries())


async def known_names(url: str) -> set[str]:
    """The metrics of a process that serves HTTP, as it shows them, with those without numbers."""
    async with Rota(url).connected() as app, browsing(app) as http:
        shown = parse((await http.get("/metrics")).text)
        gauges = {one.name for one in await metrics.collect(app)}
    names = {one.name for one in PROCESS_METRICS if one.kind == "counter"}
    for one in PROCESS_METRICS:
        if one.kind == "histogram":
            names |= {f"{one.name}_{end}" for end in ("bucket", "sum", "count")}
    return names | gauges | {"rota_streams"} | shown.keys()


@pytest.mark.parametrize(
    ("where", "query"), QUERIES, ids=[f"{w}-{n}" for n, (w, _) in enumerate(QUERIES)]
)
def test_every_query_is_promql(where: str, query: str) -> None:
    assert promql_parser.parse(query) is not None


def test_a_broken_query_is_found_out() -> None:
    with pytest.raises(ValueError, match=r"."):
        promql_parser.parse("sum by (rota_workers > 0")


async def test_every_query_asks_for_metrics_that_exist(database_url: str) -> None:
    known = await known_names(database_url)
    asked = {name for _, query in QUERIES for name in re.findall(r"\brota_\w+", query)}
    assert asked <= known
    assert "rota_runs_finished_total" in asked
    # A series that no panel shows is not worth its cost.
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    unseen = {one.name for one in PROCESS_METRICS} - families
    assert not unseen


def test_rules_say_who_is_woken_and_what_to_do() -> None:
    rules = alert_rules.document(5)["groups"][0]["rules"]
    names = [rule["alert"] for rule in rules]
    assert len(set(names)) == len(names)
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"]
        assert re.fullmatch(r"\d+[mh]", rule["for"])


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = grafana_dashboard.document()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place: dict[str, int] = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, ["metrics", *words])


def test_the_command_prints_yaml_and_json_without_a_database(tmp_path: Path) -> None:
    rules = yaml.safe_load(run("--alerts", "--budget", "2.5").stdout)
    assert rules == alert_rules.document(2.5)
    cost = next(rule for rule in rules["groups"][0]["rules"] if rule["alert"] == "RotaModelCost")
    assert cost["expr"].endswith("> 2.5")
    target = tmp_path / "rota.json"
    assert run("--grafana", "--output", str(target)).exit_code == 0
    assert json.loads(target.read_text()) == grafana_dashboard.document()
    both = run("--alerts", "--grafana")
    assert both.exit_code == 2
    assert "two files" in both.output
    rules_as_json = run("--alerts", "--json")
    assert rules_as_json.exit_code == 2
    assert "--alerts prints YAML" in rules_as_json.output
    for others in ((), ("--grafana",)):
        lost = run("--budget", "2.5", *others)
        assert lost.exit_code == 2
        assert "--budget means something only with --alerts" in lost.output
    assert json.loads(run("--grafana", "--json").stdout) == grafana_dashboard.document()
    written = run("--grafana", "--json", "--output", str(target))
    assert json.loads(written.stdout) == {"file": str(target)}
