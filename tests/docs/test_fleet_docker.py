"""docker/fleet.yaml and fleet.toml, as far as they can be checked without Docker."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from mempair_db.fleet.config import read

DOCKER = Path(__file__).parents[2] / "docker"


def test_shards_workers_and_variables_fit_together() -> None:
    yaml: Any = import_module("yaml")
    services = yaml.safe_load((DOCKER / "fleet.yaml").read_text(encoding="utf-8"))["services"]
    fleet = read(DOCKER / "fleet.toml")
    assert fleet.scheduler == "tcp://scheduler:8786"
    for place in (fleet.coordinator, *fleet.shards):
        for name in ("init", "sync", "dask_1", "dask_2"):  # tasks look the variable up where they run
            host = services[name]["environment"][place.env].rpartition("@")[2].partition("/")[0]
            assert "pg_isready" in services[host]["healthcheck"]["test"]
    for name in fleet.names:
        assert services[f"worker_{name}"]["environment"]["MEMPAIR_DSN"].endswith(f"@shard_{name}/mempair")
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        assert "ports" not in service
        assert not any("PASSWORD}" in text for text in service["environment"].values() if "://" in text)


def test_the_commands_exist() -> None:
    from typer.testing import CliRunner  # noqa: PLC0415

    from mempair_db.cli import app  # noqa: PLC0415

    for words in (["fleet", "init"], ["fleet", "sync"], ["fleet", "status"], ["fleet", "model", "create"]):
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0
