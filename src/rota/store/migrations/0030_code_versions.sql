-- Which version of the code may execute a run. Both are null for nearly all runs, so the new columns
-- and indexes cost nothing on a large table.
-- The one version that may claim it (`version_policy="pinned"`), from its first claim on.
alter table runs add column pinned_version {key};
-- Versions that cannot execute it, each between spaces; empty once it has waited long enough for
-- another one.
alter table runs add column refused_versions {text};
create index runs_pinned on runs (namespace, pinned_version)
    where pinned_version is not null and finished_at is null;
create index runs_refused on runs (namespace) where refused_versions > '' and status = 'pending';
