-- count_invoices: without a WHERE. Which invoices there are to see is the policy's to say, from the tenant of the job.
select count(*) from billing.invoices
