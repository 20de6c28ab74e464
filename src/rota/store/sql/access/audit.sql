-- name: put_audit
insert into audit (id, namespace, at, who, verb, target, request_id, detail)
values (:id, :namespace, :at, :who, :verb, :target, :request_id, :detail)

-- name: list_audit
select {audit columns} from audit
where namespace = :namespace and id < :before
order by id desc limit :limit

-- name: forget_audit
delete from audit where id in (
    select old.id from audit as old
    where old.namespace = :namespace and old.id < :before_id
    order by old.id limit :limit)
