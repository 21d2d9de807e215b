-- statuses: where some jobs stand, by primary key: asked again and again by whoever waits for their end.
select j.id, j.status from fencepost.jobs j where j.id = any (%(ids)s::bigint[])
