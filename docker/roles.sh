#!/bin/sh
# Runs once, when the database of compose.yaml is made: the worker has a role of its own, with no rights yet.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set password="$MEMPAIR_WORKER_PASSWORD" <<'SQL'
create role mempair_worker login password :'password' nosuperuser nocreatedb nocreaterole;
SQL
