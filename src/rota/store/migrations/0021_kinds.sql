-- The kind of the runs of a schedule is a field of its intent; it was a prefix of the name before.
update runs set spec = replace(spec, '"workflow":"pipeline:', '"kind":"pipeline","workflow":"pipeline:')
where kind = 'schedule' and spec like '%"workflow":"pipeline:%';
-- `runs.phase` is not used any more. It stays: workers of the version before still read it.
