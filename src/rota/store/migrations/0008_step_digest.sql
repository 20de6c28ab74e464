-- What a step was called with, as eight bytes. Null: recorded before, or not to be compared.
alter table steps add column digest {int};
