-- only_reads: whether the server only reads: asked where a session sends nothing that would be refused there.
select current_setting('transaction_read_only')::bool
