-- What `mempair verify` reads beside the worker's own queries. Locked is no more than by a SELECT.

-- verify_published --
-- What is served, with the names of the features.
select m.numeric_features, m.text_features, m.retrain_requested, s.rows_learned, s.reference_rows, s.version as state_version,
       s.epoch as state_epoch, p.version, p.epoch, p.weights, p.centers, p.intercept, p.level_weights, p.scales,
       p.missing_weights, p.knots, p.knot_weights, p.places, p.radius, p.shift, p.link, p.ready, p.samples, s.uncertainty, p.held,
       s.references_left, (select h.problem from mempair.wrong_held(%(model)s::integer) h) as wrong_held
from mempair.latest_published(%(model)s::integer) p
join mempair.model m on m.id = p.model_id
join mempair.state s on s.model_id = p.model_id
where p.model_id = %(model)s

-- verify_classes --
select c.class, c.intercept, c.weights, c.missing_weights, c.knot_weights, c.level_weights
from mempair.latest_classes(%(model)s::integer) c order by c.place

-- each_learned --
select l.keys, l.prints, l.bucket from mempair.learned_keys l where l.model_id = %(model)s

-- verify_schema --
-- DDL that changed what the extractors yield, or NULL.
select mempair.schema_changes(%(model)s)

-- verify_keys --
-- Keys that our tables hold, beside the learned ones.
select h.row_key, h.held_in from mempair.held_keys(%(model)s) h where h.held_in <> 'learned_keys.keys'

-- verify_constants --
select m.name, m.constants from mempair.model m where m.id = %(model)s
