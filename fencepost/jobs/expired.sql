-- expired: leases that have run out, behind the mark up to which an earlier look has seen everything. The dead entries of
-- prolonged and finished leases lie before the mark, and are not walked again. Always at least one row: the next mark.
select looked.at as looked_at, j.id, j.fence, j.locked_by as name, j.locked_until
from (select now() as at) looked
left join lateral (
    select j.id, j.fence, j.locked_by, j.locked_until
    from fencepost.jobs j
    where j.status = 'running' and j.locked_until <= now() and j.locked_until > %(mark)s
) j on true
