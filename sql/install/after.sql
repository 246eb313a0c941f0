-- Nothing of ours is for everybody: readers are granted what they need, object by object.
revoke all on all tables in schema mempair from public;
revoke all on all sequences in schema mempair from public;
revoke all on all functions in schema mempair from public;
