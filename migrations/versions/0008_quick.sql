-- What one deletion need not count or search.
alter table mempair.state add column references_left bigint;
comment on column mempair.state.references_left is 'How many reference rows there are: to count them would take longer than a small batch. NULL: not counted yet.';

-- Refused rows: a deletion looks for its row among them.
create index on mempair.rejected (model_id, row_key);
