-- What a certified model serves, beside what an exact one does: a row is divided by its length or the radius, whichever is
-- larger.
alter table mempair.published
    add column radius float8 check (radius > 0),
    add column shift float8;
comment on column mempair.published.radius is
    'Certified pair: the margin is divided by greatest(radius, length of the encoded row). NULL: an exact model, nothing is divided.';
comment on column mempair.published.shift is 'Certified pair: added after that division, the centre of the target.';
