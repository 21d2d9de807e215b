-- create_schema
create schema fencepost
