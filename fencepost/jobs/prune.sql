-- prune: one step along the jobs by their ids; what has been at rest for long enough is deleted. A definer's function, so that
-- no login needs the right to delete jobs. By the time that it took, without that of the way here, the next step is made larger
-- or smaller.
select
    pruned.mark, pruned.ripe, pruned.deleted, pruned.ended,
    extract(epoch from clock_timestamp() - statement_timestamp())::float8 as took
from fencepost.prune(%(age)s, %(mark)s, %(span)s, %(most)s) pruned
