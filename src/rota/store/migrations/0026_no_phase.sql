-- Nothing has read or written this column since 0021.
alter table runs drop column phase;
