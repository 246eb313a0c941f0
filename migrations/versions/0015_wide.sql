-- Constants of an exact regression say whether its numbers are clamped at 16 scales. Such models are read anew, and what is published
-- serves until then.
update mempair.model m set retrain_requested = coalesce(m.retrain_requested, 'numbers of a regression may be clamped farther out')
where m.constants ->> 'loss' in ('squared', 'huber') and m.promise ->> 'unlearner' = 'exact';
