-- Nothing of ours is for everybody: readers are granted what they need, object by object.
revoke all on all tables in schema mempair from public;
revoke all on all sequences in schema mempair from public;
revoke all on all functions in schema mempair from public;
revoke all on function public.mempair_predict(text, float8[]), public.mempair_try_predict(text, float8[]) from public;

-- A newer version may write its triggers and predictions differently.
select mempair.rewrite_functions();
select mempair.apply_grants();
