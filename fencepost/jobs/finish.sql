-- finish: a run's outcome, whichever it is, under its fence. False: the run no longer held its job.
select fencepost.finish(
    %(job_id)s, %(fence)s, %(name)s, %(outcome)s, wait => %(wait)s, final => %(final)s, result => %(result)s,
    error => %(error)s, summary => %(summary)s, stack => %(stack)s, max_rss => %(max_rss)s
)
