-- Constants of exact models say whether the ridge is eased, which follows from the reference rows, and their sums count a regression's
-- targets beyond the clamp. All are read anew, and what is published serves until then.
update mempair.model m set retrain_requested = coalesce(m.retrain_requested, 'the ridge may be eased, and far targets are counted')
where m.constants is not null and m.promise ->> 'unlearner' = 'exact';
