-- Answers of people: who, when, why.

-- name: put_answer
insert into answers (id, namespace, automation, act, mutation_id, run_id, event_id, input_id, person,
    note, at)
values (:id, :namespace, :automation, :act, :mutation_id, :run_id, :event_id, :input_id, :person,
    :note, :now)

-- name: list_answers
select {answer columns} from answers
where namespace = :namespace and automation = :automation
    and (:change_id = '' or mutation_id = :change_id) and (:before = '' or id < :before)
order by id desc limit :limit

-- name: answers_of_runs
select {answer columns} from answers
where run_id {in run_ids} order by id
