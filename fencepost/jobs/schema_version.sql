-- schema_version: which migration the tables are at.
select v.version from fencepost.schema_version v
