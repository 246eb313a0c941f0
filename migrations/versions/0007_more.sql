-- More kinds of models, versions and fleets. One section per topic.

-- The live page: who is responsible for the data, and how long a deletion may wait.
create table mempair.setting (
    name  text primary key,
    value text not null
);
comment on table mempair.setting is 'Set by mempair.configure: controller, deadline.';

-- Coefficients: standard errors.
alter table mempair.state add column uncertainty float8[];
comment on column mempair.state.uncertainty is
    'Of an exact model, per class two rows: what the ridge took from the served intercept, weights, knots, missing and level weights, '
    'and their standard errors. A function of the sums.';
drop function if exists mempair.coefficients(text);

-- Roles: an operator, beside worker, reader and auditor.
alter table mempair.granted drop constraint granted_kind_check;
alter table mempair.granted add constraint granted_kind_check check (kind in ('worker', 'reader', 'auditor', 'operator'));
comment on table mempair.granted is 'Who works, reads, audits and operates: new models are granted to them too.';
