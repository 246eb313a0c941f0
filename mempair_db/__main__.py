"""`python -m mempair_db` is `mempair`."""

from mempair_db.cli import main

main()
