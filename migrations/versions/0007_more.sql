-- More kinds of models, versions and fleets. One section per topic.

-- The live page: who is responsible for the data, and how long a deletion may wait.
create table mempair.setting (
    name  text primary key,
    value text not null
);
comment on table mempair.setting is 'Set by mempair.configure: controller, deadline.';
