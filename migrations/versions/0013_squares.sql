-- Constants of an exact regression say whether the ridge is eased. Such models are read anew, and what is published serves until then.
update mempair.model m set retrain_requested = coalesce(m.retrain_requested, 'the ridge of a regression may be eased')
where m.constants ->> 'loss' in ('squared', 'huber') and m.promise ->> 'unlearner' = 'exact';
