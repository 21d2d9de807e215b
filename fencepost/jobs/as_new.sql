-- as_new: what a rollback takes back and a commit would keep, other than settings. With `forget`, what resets these, and `ours`,
-- it is DISCARD ALL, which can't be part of a transaction. At a job's begin it takes away what others have left, at its end what
-- the job would leave to others.
close all;
unlisten *;
discard temp
