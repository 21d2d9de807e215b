-- leases: how the leases of runs stand: of those runs that began behind the mark and have gone on for a while, and of those
-- that are known already. Without a mark: of all. Always at least one row: the server's time, and the next mark.
-- The dead entries of ended runs lie before the mark, and are not walked again. Known runs are read by primary key.
select looked.at, looked.at - %(age)s as mark, j.id, j.fence, j.locked_by as name, j.locked_until
from (select now() as at) looked
left join lateral (
    select j.id, j.fence, j.locked_by, j.locked_until
    from fencepost.jobs j
    where j.status = 'running' and j.started_at > coalesce(%(mark)s::timestamptz, '-infinity')
        and j.started_at <= case when %(mark)s::timestamptz is null then 'infinity' else looked.at - %(age)s end
    union all
    select j.id, j.fence, j.locked_by, j.locked_until
    from unnest(%(ids)s::bigint[]) as known (id)
    cross join lateral (
        select * from fencepost.jobs j where j.id = known.id and j.locked_until is not null limit 1
    ) j
) j on true
