-- finish_and_commit: the run's one transaction and its being done, together or not at all. As commit.sql otherwise.
set constraints all immediate;
select fencepost.hold(%(job_id)s, %(fence)s, %(name)s);
select fencepost.finish(%(job_id)s, %(fence)s, %(name)s, 'done', result => %(result)s, max_rss => %(max_rss)s);
commit
