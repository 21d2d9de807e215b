-- notify: is anyone listening? Sent where the jobs are, to find out whether a connection that listens hears of them.
select pg_notify(%(channel)s, '')
