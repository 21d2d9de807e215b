-- discard: nothing of a job stays in its session. ROLLBACK and RESET ALL would leave roles, temporary tables, advisory locks
-- and LISTEN.
discard all
