-- roles: who owns the tables, and as whom the workers log in. Neither is a superuser, and row-level security binds both.
create role owner login;
create role worker login;
grant create on database postgres to owner
