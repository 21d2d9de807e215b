-- schema_exists: whether the schema is there, made beforehand by a DBA perhaps: `create schema if not exists` would want the
-- right to create one even then.
select exists (select from pg_namespace where nspname = 'fencepost')
