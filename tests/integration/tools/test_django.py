"""The recipe of sql/README.md for Django: migrations that bring schema and model into an empty database, and back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.world import opened

SETTINGS = """
SECRET_KEY = "test"
INSTALLED_APPS = ["store"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "{dbname}", "USER": "{user}",
                          "PASSWORD": "{password}", "HOST": "{host}", "PORT": "{port}"}}}}
"""
MODELS = """
from django.db import models


class Customer(models.Model):
    age = models.FloatField()
    plan = models.TextField()
    churned = models.BooleanField()
"""
PREDICT = """
import django

django.setup()
from store.models import Customer

{expression}
print(min(float(c.risk) for c in found))
"""


def blocks() -> list[str]:
    """The Python examples of the recipe."""
    text = (Path(__file__).parents[3] / "sql" / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text[text.index("## Django") :], re.DOTALL)


def run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": str(folder)}
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_recipe_for_django_works_there_and_back(empty_database: str, tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(SETTINGS.format(**conninfo_to_dict(empty_database)))
    (tmp_path / "store" / "migrations").mkdir(parents=True)
    for name in ("store/__init__.py", "store/migrations/__init__.py"):
        (tmp_path / name).touch()
    (tmp_path / "store" / "models.py").write_text(MODELS)
    run(tmp_path, "-m", "django", "makemigrations", "store")
    install, declare, expression = blocks()
    (tmp_path / "store" / "migrations" / "0002_mempair.py").write_text(install)
    (tmp_path / "store" / "migrations" / "0003_churn.py").write_text(declare)
    run(tmp_path, "-m", "django", "migrate")
    with opened(empty_database) as world:
        world(
            "insert into store_customer (age, plan, churned) "
            "select i % 50, 'p', i % 50 < 25 from generate_series(1, 400) i"
        )
        world.work()
    assert 0 < float(run(tmp_path, "-c", PREDICT.format(expression=expression))) < 0.5
    run(tmp_path, "-m", "django", "migrate", "store", "0001")
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("select count(*) from mempair.model").fetchone() == (0,)
    run(tmp_path, "-m", "django", "migrate")
