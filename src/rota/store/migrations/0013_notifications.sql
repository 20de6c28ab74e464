-- Rules: who wants which notifications. No address and no secret is stored here.
create table notification_rules (
    namespace {key} not null,
    name {key} not null,
    origin {key} not null,
    kinds {text} not null,
    body {text} not null,
    progress {text},
    primary key (namespace, name)
) {strict};

-- What happened, recorded in the transaction that caused it, for namespaces with rules.
create table notifications (
    id {key} primary key,
    namespace {key} not null,
    kind {text} not null,
    source {text} not null,
    name {text} not null,
    schedule {text},
    queue {text} not null,
    tags {text},
    subject {key} not null,
    run_id {key} not null,
    details {text} not null,
    created_at {int} not null,
    is_open {int} not null,
    dispatched_at {int},
    sent_to {text}
) {strict};
create index notifications_new on notifications (namespace, id) where dispatched_at is null;
create index notifications_by_time on notifications (namespace, created_at);
create index notifications_open on notifications (subject) where is_open = 1;
