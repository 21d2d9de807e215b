-- forget: what a rollback does not take back. Behind a pooler this comes before the commit, in the same message: the pooler gives
-- the session to somebody else as soon as no transaction is open. Should the commit fail, then the server itself takes back all
-- that is not forgotten here.
select pg_catalog.pg_advisory_unlock_all();
deallocate all;
discard sequences
