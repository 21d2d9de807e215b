-- fire_constraints: deferred ones come first, so that no trigger of the user's runs while `hold` has locked the row.
set constraints all immediate
