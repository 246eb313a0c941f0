-- Classes too many and too wide to be solved together had each a model of its own against the rest. Their sums are of another
-- kind than the present ones: the table is read anew, and what is published serves until then.
update mempair.model m set retrain_requested = coalesce(m.retrain_requested, 'several classes are learned in another way')
where m.constants ? 'labels'
  and jsonb_array_length(m.constants -> 'w0') * jsonb_array_length(m.constants -> 'w0' -> 0) > 1024;

alter table mempair.published_class drop column together;
drop function if exists mempair.served_each(mempair.model, boolean);  -- which had that column too
