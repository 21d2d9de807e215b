-- moment: what time it is now. In a transaction that has been open for a while, now() is when it began.
select clock_timestamp()
