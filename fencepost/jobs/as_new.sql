-- as_new: what a rollback takes back and a commit would keep, other than settings. With `forget` and what resets these it is
-- DISCARD ALL, which can't be part of a transaction or a message. Behind a pooler it takes away what others have left at a job's
-- begin, and at its end what the job would leave to others.
-- Plans of functions are such a thing: where one that is said to be immutable reads the tenant's setting, as policies call it for
-- speed, the tenant stands in the plan, and the next one's job would see this one's rows.
close all;
unlisten *;
discard temp;
discard plans
