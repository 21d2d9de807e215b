-- schema_is_there: whether Fencepost's tables are there at all.
select exists (
    select from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'fencepost' and c.relname = 'schema_version'
)
