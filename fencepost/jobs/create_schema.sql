-- create_schema: where the DBA has not made it beforehand.
create schema fencepost
