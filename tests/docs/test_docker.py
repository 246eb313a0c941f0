"""The files under docker/, as far as they can be checked without Docker."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile and their arguments."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [(instruction, rest) for instruction, _, rest in (line.partition(" ") for line in lines)]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return found


def kubernetes() -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of kubernetes.yaml, by kind and name."""
    found = yaml.safe_load_all((DOCKER / "kubernetes.yaml").read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def pods() -> dict[str, dict[str, Any]]:
    """The pods that they make."""
    found = {}
    for (kind, name), each in kubernetes().items():
        if kind == "Deployment":
            found[name] = each["spec"]["template"]["spec"]
        elif kind == "CronJob":
            found[name] = each["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return found


def mempair_commands() -> Iterator[tuple[str, list[str]]]:
    """Where a `mempair` command is used, and its words."""
    instructions = dict(dockerfile())
    entrypoint = json.loads(instructions["ENTRYPOINT"])
    yield "Dockerfile CMD", [*entrypoint, *json.loads(instructions["CMD"])]
    yield "Dockerfile HEALTHCHECK", json.loads(instructions["HEALTHCHECK"].partition("CMD ")[2])
    for name, service in compose()["services"].items():
        if service["image"] == "mempair":
            yield f"compose.yaml {name}", [*entrypoint, *service["command"]]
            if test := service["healthcheck"].get("test"):
                yield f"compose.yaml {name} healthcheck", test[1:]
    for name, pod in pods().items():
        (container,) = pod["containers"]
        yield f"kubernetes.yaml {name}", [*entrypoint, *container["args"]]
        if probe := container.get("readinessProbe"):
            yield f"kubernetes.yaml {name} readiness", probe["exec"]["command"]
    readme = (DOCKER / "README.md").read_text()
    for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(line)
            if (
                words[:2] == ["docker", "run"]
                or words[-3:-1] == ["worker", "mempair"]
                or words[0] in ("mempair", "uvx")
            ):
                yield f"README.md: {line}", words[words.index("mempair", 1 if words[0] == "uvx" else 0) :]
    for words in re.findall(r"`(mempair [a-z ]+)`", readme):
        yield f"README.md: {words}", words.split()


@pytest.mark.parametrize("words", [pytest.param(words, id=where) for where, words in mempair_commands()])
def test_every_command_exists(words: list[str]) -> None:
    from typer.testing import CliRunner  # noqa: PLC0415

    from mempair_db.cli import app  # noqa: PLC0415

    assert words[0] == "mempair"
    # Unknown commands and options are refused before help is shown.
    result = CliRunner().invoke(app, [*words[1:], "--help"])
    assert result.exit_code == 0, result.output


def test_the_worker_is_what_the_image_runs() -> None:
    assert dict(mempair_commands())["Dockerfile CMD"][:2] == ["mempair", "worker"]


def test_the_image_does_not_run_as_root() -> None:
    instructions = [instruction for instruction, _ in dockerfile()]
    assert int(dict(dockerfile())["USER"]) > 0
    # It stays that user, and brings nothing of anybody else's in afterwards.
    assert not {"USER", "COPY", "ADD"} & set(instructions[instructions.index("USER") + 1 :])


def test_everything_the_image_copies_is_there() -> None:
    for instruction, arguments in dockerfile():
        if instruction == "COPY" and not arguments.startswith("--from"):
            for source in arguments.split()[:-1]:
                assert (ROOT / source).exists(), source


def test_the_image_has_all_that_the_package_is_built_from() -> None:
    copied = {word for name, rest in dockerfile() if name == "COPY" for word in rest.split()}
    project = (ROOT / "pyproject.toml").read_text()
    included = re.search(r"force-include\]\n(.*?)\n\n", project, re.DOTALL)
    assert included
    assert {line.split(" = ")[0] for line in included[1].splitlines()} <= copied
    assert {"pyproject.toml", "README.md", "LICENSE", "mempair_db"} <= copied


def test_services_wait_for_each_other() -> None:
    services = compose()["services"]
    assert set(services) == {"postgres", "install", "grant", "worker", "web", "prometheus", "grafana"}
    assert {name for name, service in services.items() if "profiles" in service} == {"web", "prometheus", "grafana"}
    assert services["install"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["grant"]["depends_on"] == {"install": {"condition": "service_completed_successfully"}}
    assert services["worker"]["depends_on"] == {"grant": {"condition": "service_completed_successfully"}}
    for service in services.values():
        for dependency, how in service.get("depends_on", {}).items():
            assert dependency in services
            assert how["condition"] != "service_healthy" or "test" in services[dependency]["healthcheck"]


def test_the_services_agree_on_the_database_and_the_worker_is_not_its_owner() -> None:
    services = compose()["services"]
    server = services["postgres"]["environment"]
    for name in ("install", "grant", "worker", "web"):
        client = services[name]["environment"]
        assert client["PGHOST"] == "postgres"
        assert client["PGDATABASE"] == server["POSTGRES_DB"]
        role = "WORKER" if name == "worker" else "POSTGRES"
        assert client["PGPASSWORD"] == server["MEMPAIR_WORKER_PASSWORD" if role == "WORKER" else "POSTGRES_PASSWORD"]
        assert (client["PGUSER"] == server["POSTGRES_USER"]) == (role == "POSTGRES")
    worker = services["worker"]["environment"]["PGUSER"]
    assert services["grant"]["command"] == ["grant", "--worker", worker]
    script = (DOCKER / "roles.sh").read_text()
    assert re.search(rf"create role {worker} login .* nosuperuser nocreatedb nocreaterole;", script)
    assert "./roles.sh:/docker-entrypoint-initdb.d/mempair-roles.sh:ro" in services["postgres"]["volumes"]


def test_the_password_has_no_default_and_the_port_is_not_public() -> None:
    postgres = compose()["services"]["postgres"]
    assert ":?" in postgres["environment"]["POSTGRES_PASSWORD"]
    published = [service["ports"] for service in compose()["services"].values() if "ports" in service]
    assert len(published) == 5
    assert all(port.startswith("127.0.0.1:") for ports in published for port in ports)


def test_the_build_context_is_the_root_of_the_repository() -> None:
    build = compose()["services"]["install"]["build"]
    assert (DOCKER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()


def test_the_context_has_what_the_image_copies_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        word for name, rest in dockerfile() if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]
    }
    assert "*" in lines
    assert kept == copied


def test_metrics_are_published_where_they_are_served() -> None:
    instructions = dict(dockerfile())
    port = instructions["EXPOSE"]
    commands = dict(mempair_commands())
    for where in ("Dockerfile CMD", "compose.yaml worker", "kubernetes.yaml mempair-worker"):
        words = commands[where]
        assert words[words.index("--metrics-port") + 1] == port
        assert words[words.index("--metrics-host") + 1] == "0.0.0.0"
    (container,) = pods()["mempair-worker"]["containers"]
    assert container["ports"] == [{"name": "metrics", "containerPort": int(port)}]
    assert compose()["services"]["worker"]["ports"][0].endswith(f":{port}")


def test_pods_run_with_nothing_they_do_not_need() -> None:
    uid = int(dict(dockerfile())["USER"])
    assert set(pods()) == {"mempair-worker", "mempair-checkpoint", "mempair-verify"}
    for pod in pods().values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == uid
        assert pod["automountServiceAccountToken"] is False
        (container,) = pod["containers"]
        assert container["image"] == "mempair"
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_what_pods_refer_to_is_there() -> None:
    objects = kubernetes()
    secret = objects["Secret", "mempair"]["stringData"]
    for name, pod in pods().items():
        (container,) = pod["containers"]
        for variable in container["env"]:
            assert variable["valueFrom"]["secretKeyRef"]["name"] == "mempair"
            assert variable["valueFrom"]["secretKeyRef"]["key"] in secret, name
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        for volume in volumes.values():
            if claim := volume.get("persistentVolumeClaim"):
                assert ("PersistentVolumeClaim", claim["claimName"]) in objects
            for item in volume.get("secret", {}).get("items", ()):
                assert item["key"] in secret
    deployment = objects["Deployment", "mempair-worker"]["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    worker = pods()["mempair-worker"]["containers"][0]
    assert worker["livenessProbe"]["httpGet"]["port"] == worker["ports"][0]["name"]
    assert worker["env"][0]["valueFrom"]["secretKeyRef"]["key"] == "worker-dsn"


def test_every_object_has_the_fields_of_its_kind() -> None:
    versions = {
        "Secret": "v1",
        "PersistentVolumeClaim": "v1",
        "Deployment": "apps/v1",
        "CronJob": "batch/v1",
    }
    for (kind, name), each in kubernetes().items():
        assert each["apiVersion"] == versions[kind]
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name)
        if kind == "CronJob":
            assert len(each["spec"]["schedule"].split()) == 5
            assert each["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
