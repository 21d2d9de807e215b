-- lock_migrations: one at a time, to the end of the transaction. Keyed by schema: two installations don't wait for each other.
select pg_advisory_xact_lock(hashtextextended('fencepost', 4182005))
