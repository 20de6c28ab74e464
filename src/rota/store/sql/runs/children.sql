-- name: children_of
-- The first attempts of the children of a chain, in the order of their creation.
select {run columns} from runs
where parent_id = :parent_id and parent_id is not null and retry_of is null and id > :after
    and kind <> 'schedule'
order by id limit :limit

-- name: last_attempt_ids
select id from runs
where (id {in roots} or (root_id {in roots} and retry_of is not null))
    and {last attempt runs}
