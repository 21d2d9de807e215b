-- note_version: the one row says which migration was last.
insert into fencepost.schema_version as v (version) values (%(version)s)
on conflict (only_row) do update set version = excluded.version, applied_at = now()
