-- write_report: the business row. It says which attempt has written it.
insert into billing.reports (job_id, attempt) values (%(job)s, %(attempt)s)
