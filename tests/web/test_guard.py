"""Who gets in, what a page may do, and what each role sees; by plain requests, as an attacker sends them."""

from __future__ import annotations

import http.client
import json
import re
import secrets
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import psycopg
import pytest
from psycopg import sql

from tests.conftest import Run
from tests.web.conftest import Server, as_role, serving
from tests.world import World

HTML = {"Accept": "text/html"}
PAGES = ("/", "/model/1", "/model/1/quality", "/model/1/events", "/request", "/audit", "/metrics", "/live", "/check")


def ask(
    server: Server,
    path: str,
    form: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
    *,
    token: bool = True,
) -> tuple[int, dict[str, str], str]:
    """Send one request; returns status, headers and body."""
    place = urlsplit(server.address)
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)
    sent = {"Cookie": f"mempair_token={server.token}"} if token and server.token else {}
    if form is not None:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    body = urlencode(form) if form is not None else None
    connection.request("GET" if form is None else "POST", path, body, HTML | sent | (headers or {}))
    answer = connection.getresponse()
    text = "" if path == "/live" and answer.status == 200 else answer.read().decode()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text


class Attributes(HTMLParser):
    """The names of all attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names += [name for name, _ in attrs]


def form_secret(server: Server) -> str:
    """What a page of ours puts into its forms."""
    found = re.search(r'name="form" value="([^"]+)"', ask(server, "/request")[2])
    assert found is not None
    return found[1]


def test_without_the_token_nothing_is_seen(server: Server, company: World) -> None:
    for path in (*PAGES, "/model/1/export.zip", "/model/1/report.html", "/model/1/act/pause"):
        status, headers, text = ask(server, path, token=False)
        assert (status, headers["location"]) == (303, "/login"), path
        assert "churn" not in text
    assert ask(server, "/metrics", headers={"Accept": "*/*"}, token=False)[0] == 401
    assert ask(server, "/?token=wrong", token=False)[0] == 303
    assert ask(server, "/", headers={"Cookie": "mempair_token=wrong"}, token=False)[0] == 303
    assert ask(server, "/", headers={"Authorization": "Bearer wrong"}, token=False)[0] == 303
    status, headers, _ = ask(server, f"/?token={server.token}", token=False)
    assert (status, headers["location"]) == (303, "/")
    assert "httponly" in headers["set-cookie"].lower()
    assert "samesite=lax" in headers["set-cookie"].lower()
    assert "token=" not in headers["location"]
    assert ask(server, "/metrics", headers={"Authorization": f"Bearer {server.token}"}, token=False)[0] == 200


def test_the_token_can_be_typed(server: Server) -> None:
    secret = re.search(r'name="form" value="([^"]+)"', ask(server, "/login", token=False)[2])
    assert secret is not None
    form = {"form": secret[1], "token": "wrong"}
    assert ask(server, "/login", form, token=False)[0] == 401
    assert ask(server, "/login", form | {"token": server.token or ""}, token=False)[0] == 303


def test_health_is_for_everybody_and_says_no_name(server: Server) -> None:
    assert ask(server, "/healthz", token=False)[::2] == (200, "ok\n")


def test_every_answer_has_the_headers_that_keep_others_out(server: Server) -> None:
    for path in (*PAGES[:-3], "/static/style.css", "/static/live.js", "/nowhere", "/healthz", "/login"):
        _, headers, text = ask(server, path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
        inline = [a for a in Attributes(text).names if a == "style" or a.startswith("on")]
        assert inline == [], path
        assert not re.search(r"<script(?![^>]*(src=|application/json))|<style", text), path
        assert "http" + "s://" not in text


def test_another_name_for_this_machine_is_refused(server: Server) -> None:
    assert ask(server, "/", headers={"Host": "evil.example.org"})[0] == 421
    assert ask(server, "/healthz", headers={"Host": "evil.example.org:8787"})[0] == 421


def test_a_form_of_another_site_does_nothing(server: Server, company: World) -> None:
    form = {"confirm": "churn"}
    assert ask(server, "/model/1/act/pause", form)[0] == 403
    assert ask(server, "/model/1/act/pause", form | {"form": "guess"})[0] == 403
    ours = form | {"form": form_secret(server)}
    for site in ("cross-site", "same-site"):
        assert ask(server, "/model/1/act/pause", ours, {"Sec-Fetch-Site": site})[0] == 403
    assert ask(server, "/model/1/act/pause", ours | {"confirm": "spend"})[0] == 400
    assert ask(server, "/model/1/act/pause", ours | {"confirm": ""})[0] == 400
    assert ask(server, "/model/1/act/drop", ours)[0] == 404
    assert ask(server, "/model/99/act/pause", ours)[0] == 404
    assert company.one("select bool_or(paused) from mempair.model") is False


@pytest.mark.parametrize(
    "path",
    ["/model/abc", "/model/99", "/ledger/99", "/checkpoint/..%2f..%2fkeys%2fsigning.key", "/checkpoint/x.checkpoint"],
)
def test_what_is_not_there_is_said_plainly(server: Server, path: str) -> None:
    status, _, text = ask(server, path)
    assert status == 404
    assert "PRIVATE" not in text
    assert "Traceback" not in text


def test_odd_requests_are_answered(server: Server) -> None:
    secret = form_secret(server)
    assert ask(server, "/model/1/events?show='&before=-1")[0] == 200
    assert ask(server, "/model/1/events?before=99999999999999999999999")[0] == 200
    assert ask(server, "/receipt", {"form": secret, "model": "nobody", "key": "1"})[0] == 400
    assert ask(server, "/receipt", {"form": secret})[0] == 400
    status, _, text = ask(server, "/receipt", {"form": secret, "model": "churn", "key": "5"})
    assert status == 400
    assert "keeps none" in text
    assert ask(server, "/request", {"form": secret, "key": "x" * 2_000_000})[0] == 413
    assert ask(server, "/request", {"form": secret, "key": "it's \x01 “odd”"})[0] == 200
    assert ask(server, "/request", {"form": secret, "key": "zero \x00 byte"})[0] in (200, 400, 503)


def test_metrics_say_what_waits(server: Server, company: World) -> None:
    ask(server, "/healthz")  # an answer to count
    text = ask(server, "/metrics")[2]
    assert re.search(r'^mempair_web_pending_deletions\{model="churn"\} 0\.0$', text, re.MULTILINE)
    assert re.search(r'^mempair_web_rows_learned\{model="churn"\} \d+\.0$', text, re.MULTILINE)
    assert re.search(r'^mempair_web_requests_total\{status="200"\}', text, re.MULTILINE)
    assert "mempair_web_workers_alive 0.0" in text


def test_the_command_line_refuses_what_is_not_safe(mempair: Run, company: World) -> None:
    code, _, said = mempair("web", "--host", "0.0.0.0", "--no-token", "--dsn", company.dsn)
    assert code == 2
    assert "loopback" in said
    code, _, said = mempair("web", "--host", "no such host", "--dsn", company.dsn)
    assert code == 2
    assert "cannot be served" in said


@pytest.fixture
def roles(company: World, superuser: Any) -> Iterator[dict[str, str]]:
    """Roles with grants of their own, by kind, and their DSNs; roles are the whole server's, so their names are new."""
    kinds = ("reader", "auditor", "operator", "nobody")
    names = [f"web_{kind}_{secrets.token_hex(4)}" for kind in kinds]
    with psycopg.connect(superuser(company.dsn), autocommit=True) as connection:
        for name in names:
            connection.execute(sql.SQL("create role {} login password {}").format(sql.Identifier(name), name))
        grant = sql.SQL("grant usage on schema mempair_demo to {}")  # to name the type of a row
        connection.execute(grant.format(sql.Identifier(names[0])))
        yield {
            kind: as_role(company, name, *([kind] if kind != "nobody" else []))
            for kind, name in zip(kinds, names, strict=True)
        }
        for name in names:
            for statement in ("drop owned by {}", "drop role {}"):
                connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
    for name in names:
        company.execute("delete from mempair.granted where role_name = %s", name)


def test_every_role_sees_its_own_and_is_told_what_is_missing(roles: dict[str, str], company: World, home: Path) -> None:
    seen: dict[str, dict[str, tuple[int, str]]] = {}
    for name, dsn in roles.items():
        with serving(dsn, home) as server:
            asked = {path: ask(server, path) for path in ("/", "/model/1", "/model/1/quality", "/audit", "/ledger/1")}
            if name != "nobody":
                secret = form_secret(server)
                row = {"form": secret, "value age": "30", "value plan": "pro"}
                asked["request"] = ask(server, "/request", {"form": secret, "key": "7"})
                asked["score"] = ask(server, "/model/1/score", row)
                asked["act"] = ask(server, "/model/1/act/pause", {"form": secret, "confirm": "churn"})
            seen[name] = {path: (status, text) for path, (status, _, text) in asked.items()}
    reader, auditor, operator, nobody = seen.values()
    for one in (reader, auditor, operator):
        assert "churn" in one["/"][1]
        assert "may not see this: permission denied" in one["/model/1"][1]  # weights are the owner's
        assert "may not see this: permission denied" in one["/model/1/quality"][1]
        assert "mempair.request(text)" in one["request"][1]
        assert one["act"][0] == 403
        assert "read-only" in one["act"][1]
    assert "probability of churned" in reader["score"][1]
    assert "permission denied" in auditor["score"][1]
    assert "entries hold" in auditor["/ledger/1"][1]
    assert "mempair grant --auditor" in reader["/audit"][1]
    assert "mempair grant --reader" in nobody["/"][1]
    assert "churn" not in nobody["/"][1]
    for one in seen.values():
        assert all("Traceback" not in text for _, text in one.values())
        assert "0.8316" not in json.dumps(list(one.values()))


def test_an_operator_acts_under_its_own_rights(roles: dict[str, str], company: World, home: Path) -> None:
    with serving(roles["operator"], home, actions=True) as server:
        form = {"form": form_secret(server), "confirm": "spend"}
        assert ask(server, "/model/2/act/pause", form)[0] == 303
        assert company.one("select paused from mempair.model where id = 2") is True
        assert ask(server, "/model/2/act/resume", form)[0] == 303
        assert company.one("select paused from mempair.model where id = 2") is False
    with serving(roles["reader"], home, actions=True) as server:
        form = {"form": form_secret(server), "confirm": "spend"}
        status, _, text = ask(server, "/model/2/act/pause", form)
        assert status == 403
        assert "permission denied" in text


def test_looking_never_writes(company: World, home: Path, server: Server) -> None:
    """Every page of a read-only server, and not one row of schema mempair differs."""

    def everything() -> list[Any]:
        tables = company.execute(
            "select relname from pg_class where relnamespace = 'mempair'::regnamespace and relkind = 'r' order by 1"
        )
        find = "select md5(coalesce(string_agg(t::text, '|' order by t::text), '')) from mempair.{} t"
        return [company.sql.execute(sql.SQL(find).format(sql.Identifier(name))).fetchone() for (name,) in tables]

    before = everything()
    secret = form_secret(server)
    for path in (*PAGES, "/model/1/score", "/model/1/verify", "/ledger/1", "/model/1/report.html"):
        assert ask(server, path)[0] == 200, path
    for form in ("page", "html", "json"):
        assert ask(server, "/receipt", {"form": secret, "model": "churn", "key": "7", "as": form})[0] == 200
    assert ask(server, "/request", {"form": secret, "key": "7"})[0] == 200
    assert everything() == before


def test_a_database_that_does_not_answer_is_said(home: Path, company: World) -> None:
    with serving(company.dsn.replace("dbname=", "dbname=gone_"), home) as server:
        status, _, text = ask(server, "/")
        assert status == 503
        assert "does not exist" in text
        assert ask(server, "/healthz")[0] == 503
