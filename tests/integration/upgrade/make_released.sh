#!/bin/sh
# Make released-0.1.0.sql anew: ./make_released.sh FOLDER DSN, with release 0.1.0 unpacked in FOLDER, and the DSN of a
# superuser's on a scratch server, where the roles below may be made.
set -eu
cd "$(dirname "$0")"
folder=$1 admin=$2
owner=$(echo "$admin" | sed -E 's,//[^@]*@,//mempair_owner:owner@,; s,/[^/?]*(\?|$),/released\1,')
mempair() { (cd "$folder" && PYTHONPATH="$folder" "${PYTHON:-python3}" -m mempair_db "$@" --dsn "$owner"); }
sql() { psql -X -q -v ON_ERROR_STOP=1 -d "$owner" -c "$1"; }

psql -X -q -d "$admin" -v ON_ERROR_STOP=1 <<'SQL'
create role mempair_owner login password 'owner';
create role released_worker login password 'released';
create role released_reader login password 'released';
create role released_auditor login password 'released';
create database released owner mempair_owner template template0 encoding 'UTF8';
SQL
mempair install
sql "create table customers (id integer primary key, person text, age integer, plan text, spend numeric(10, 2), churned boolean)"
sql "create table houses (street text, number integer, area float8, rooms integer, price float8, primary key (street, number))"
sql "select mempair.create_model('churn', 'customers', target => 'churned', features => '{age,plan,spend}', subject => 'person',
                                 lambda => 0.05, gamma => 0.9, calibration_rows => 60, on_null => 'impute', keep_receipts => '100 years')"
sql "select mempair.create_model('price', 'houses', target => 'price', features => '{area,rooms}', lambda => 0.05, gamma => 0.9,
                                 calibration_rows => 60)"
mempair grant --worker released_worker --reader released_reader --auditor released_auditor
sql "insert into customers
     select i, 'person ' || i / 2, 20 + i * 7919 % 50, (array['basic', 'plus', 'pro', 'Größe ∞'])[1 + i % 4], i * 104729 % 1000 / 10.0,
            (i * 7919 % 50) + (i * 31 % 17) < 32
     from generate_series(1, 200) i"
sql "insert into houses select 'street ' || i % 7, i, 40 + i * 31 % 100, 1 + i % 5, 1000 * (40 + i * 31 % 100) + i from generate_series(1, 150) i"
mempair worker --once
sql "delete from customers where id in (10, 11)"
mempair worker --once
# These wait while the new version is installed.
sql "insert into customers values (1001, 'new', 33, 'pro', 12.5, true), (1002, 'new', 34, null, 1.5, false)"
sql "delete from customers where id = 20"
sql "update customers set age = age + 1 where id = 30"
sql "delete from houses where number = 5"
sql "create view busy as select model, status, pending_deletions, rho_spent from mempair.model_status where model_id > 0"
sql "create view spent as select model, max(rho_spent) as rho from mempair.odometer group by model"
pg_dump --no-owner -d "$owner" | grep -vE '^(\\(un)?restrict|SET (transaction_timeout|default_table_access_method)|SELECT pg_catalog.set_config|--|$)' > released-0.1.0.sql
