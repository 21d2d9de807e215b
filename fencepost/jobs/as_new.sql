-- as_new: what a rollback takes back and a commit would keep, other than settings. With `forget`, `forget_plans` and what resets
-- these it is DISCARD ALL, which can't be part of a transaction or a message. Behind a pooler it takes away what others have left
-- at a job's begin, and at its end what the job would leave to others.
close all;
unlisten *;
discard temp
