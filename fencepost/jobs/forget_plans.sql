-- forget_plans: where a function that is said to be immutable reads the tenant's setting, as policies call one for speed, the tenant
-- stands in the plans that functions and constraints keep, and the next one's job would see this one's rows.
discard plans
