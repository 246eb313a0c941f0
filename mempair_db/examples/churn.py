# Customer churn, as a notebook: every cell begins with "# %%".
# Open it in an editor that knows such cells, or run it whole: python -m mempair_db.examples.churn

# %% A table of customers, in the database of MEMPAIR_DSN or in the embedded one.
import random

import psycopg

from mempair_db import Client
from mempair_db.examples import afresh, work

client = Client()
client.install()
afresh(client, "example_churn")
random.seed(7)
with psycopg.connect(client.dsn, autocommit=True) as session:
    session.execute("drop table if exists example_customers cascade")
    session.execute(
        "create table example_customers"
        " (id integer primary key, tenure integer, calls integer, plan text, churned boolean)"
    )

# %% A model on it: from now on the table learns.
client.create_model("example_churn", "example_customers", target="churned", features=["tenure", "calls", "plan"])


def customer(number: int) -> dict[str, object]:
    """Invent one who leaves the sooner, the more often he had to call."""
    tenure, calls = random.randrange(60), random.randrange(10)  # noqa: S311
    churned = random.random() < 1 / (1 + 2.718 ** (2 + tenure / 20 - calls / 2))  # noqa: S311
    plan = random.choice(["basic", "pro"])  # noqa: S311
    return {"id": number, "tenure": tenure, "calls": calls, "plan": plan, "churned": churned}


client.learn("example_churn", [customer(number) for number in range(2000)])
work(client)
print(client.status("example_churn"))

# %% How good is it, and what has it found?
figures = client.evaluate("example_churn")
print({name: round(figures[name], 3) for name in ("log_loss", "base_log_loss", "auc", "accuracy")})
for found in client.coefficients("example_churn"):
    if found["kind"] in ("number", "level"):
        interval = f"{found['lower_95']:.3f} to {found['upper_95']:.3f}"
        print(found["feature"], found["level"] or "", round(found["weight"], 3), "95 %:", interval)

# %% Who is about to leave, and why?
asked = {"tenure": 2, "calls": 9, "plan": "basic"}
risk = client.predict("example_churn", asked)
reasons = {each["feature"]: round(each["contribution"], 2) for each in client.explain("example_churn", asked)}
print(round(risk, 3), reasons)

# %% A customer asks to be forgotten. The model is then the one that never saw her.
client.forget("example_churn", 42)
work(client)
receipt = client.receipt("example_churn", 42)
print(receipt and receipt["deletions"][0]["statement"])
