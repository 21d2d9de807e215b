"""The shortest claims: a job is a row that is deleted, or one that is marked done. Claim and finish are one statement."""

DELETE = "delete from queue where id = (select id from queue order by id limit 1 for update skip locked) returning id"
MARK = """
update marked set status = 'done'
where id = (select id from marked where status = 'queued' order by id limit 1 for update skip locked) returning id"""
