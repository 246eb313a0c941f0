create or replace function mempair.write_predict(source regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
end $$;
