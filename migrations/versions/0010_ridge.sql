-- The reference weights were chosen with a ridge of 10 whatever the model's own. Models with a smaller one are read anew, and what
-- is published serves until then.
update mempair.model m set retrain_requested = coalesce(m.retrain_requested, 'the reference weights are chosen with the model''s own ridge')
where m.constants is not null and m.promise ->> 'unlearner' = 'exact' and (m.promise ->> 'ridge')::float8 < 10;
