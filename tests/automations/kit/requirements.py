"""Which test represents which line of the plans that automations were built from: every line of
their "Testing" sections, and every row of every table of chapter 16. A test is named as
`file::test`, or `file::test[id]` where a row is one case of several.
"""

from __future__ import annotations

CONSUMERS = "test_consumers.py"
PRODUCERS = "test_producers.py"
CHECKPOINTS = "test_checkpoints.py"
PATTERNS = "test_consumer_patterns.py"
SCHEDULING = "test_scheduling_requirements.py"

_CLAMPED = f"{CONSUMERS}::test_wake_at_is_clamped_to_its_bounds"
_SURVIVES = f"{CHECKPOINTS}::test_what_must_survive_a_restart_is_in_the_database"
_FRESH = f"{SCHEDULING}::test_before_the_mutation_is_applied_a_new_run_starts_fresh_from_preparing"
_COPIED = (
    f"{SCHEDULING}::test_after_the_mutation_is_applied_a_new_run_copies_results_and_is_emitting"
)
_FAILURE = f"{SCHEDULING}::test_a_failure_leads_to_its_status_and_its_next_action"
_RESOLVED = (
    f"{CHECKPOINTS}::test_each_status_pauses_the_automation_and_is_resolved_as_the_table_says"
)
_PAUSED = f"{SCHEDULING}::test_a_paused_workflow_does_nothing_until_it_is_resolved"

# document and section → line or row → test
REQUIREMENTS: dict[str, dict[str, str]] = {
    "exec-11: Testing": {
        "wakeAt clamping to min/max bounds": _CLAMPED,
        "consumer A wakes at its wakeAt while consumer B keeps its different wakeAt":
            f"{CONSUMERS}::test_consumer_a_wakes_at_its_time_while_b_keeps_its_own",
        "consumer wakes on new event before wakeAt":
            f"{CONSUMERS}::test_a_new_event_wakes_a_consumer_before_its_wake_time",
        "dirty flag set on event publish":
            f"{CONSUMERS}::test_publishing_marks_the_reader_dirty",
        "dirty flag cleared on consumer commit":
            f"{CONSUMERS}::test_a_commit_clears_dirty_when_nothing_is_left",
        "restart recovery sets dirty for consumers with pending events":
            f"{CONSUMERS}::test_a_restart_runs_consumers_that_have_pending_events",
        "wakeAt persisted and survives restart (no recovery needed)":
            f"{CONSUMERS}::test_a_wake_time_survives_a_restart",
        "empty reservations with wakeAt schedules next run":
            f"{CONSUMERS}::test_empty_reservations_with_a_wake_time_schedule_the_next_run",
        "multiple consumers with different wakeAt values":
            f"{CONSUMERS}::test_several_consumers_have_different_wake_times",
    },
    "exec-13: Testing": {
        "two producers with different intervals run independently":
            f"{PRODUCERS}::test_two_producers_with_different_intervals_run_independently",
        "producer A (5 min) doesn't affect producer B (1 hour) schedule":
            f"{PRODUCERS}::test_a_producer_of_5_min_does_not_affect_the_schedule_of_one_of_1_hour",
        "queued flag per-producer": f"{PRODUCERS}::test_the_queued_flag_is_per_producer",
        "restart recovery queues correct producers":
            f"{PRODUCERS}::test_a_restart_queues_the_producers_that_came_due_and_no_other",
        "manual trigger queues all producers":
            f"{PRODUCERS}::test_run_now_queues_all_producers_and_each_is_timed_again",
        "config update handles added/removed producers":
            f"{PRODUCERS}::test_a_changed_config_adds_updates_and_removes_producers",
    },
    "16: Host-enforced constraints": {
        "Minimum interval": f"{_CLAMPED}[minimum interval]",
        "Maximum interval": f"{_CLAMPED}[maximum interval]",
        "Invalid values":
            f"{CONSUMERS}::test_a_wake_at_that_is_no_time_is_ignored_and_remarked",
    },
    "16: Pattern Coverage": {
        "Simple FIFO": f"{PATTERNS}::test_first_in_first_out",
        "Correlation": f"{PATTERNS}::test_correlation_waits_for_the_partner",
        "Time window": f"{PATTERNS}::test_a_time_window_takes_events_after_a_delay",
        "Batch + timeout":
            f"{PATTERNS}::test_a_batch_goes_when_it_is_full_or_when_its_time_is_up",
        "Daily digest":
            f"{PATTERNS}::test_a_daily_digest_is_woken_by_events_and_waits_for_its_hour",
    },
    "16: Persisted State": {
        "next_run_at": f"{_SURVIVES}[next_run_at]",
        "wakeAt": f"{_SURVIVES}[wake_at]",
        "state": f"{_SURVIVES}[state]",
    },
    "16: In-Memory State": {
        "dirty": f"{CONSUMERS}::test_a_restart_runs_consumers_that_have_pending_events",
        "queued": f"{SCHEDULING}::test_queued_triggers_that_fired_during_an_active_run"
                  "_are_recovered_after_a_restart",
    },
    "16: Run Status": {
        "active": f"{SCHEDULING}::test_active_means_that_it_is_executing",
        "paused:transient": f"{SCHEDULING}::test_paused_transient_backs_off_then_a_new_run",
        "paused:approval":
            f"{SCHEDULING}::test_paused_approval_waits_until_the_user_approves_or_rejects",
        "paused:reconciliation":
            f"{SCHEDULING}::test_paused_reconciliation_ends_by_reconciliation_or_user_action",
        "failed:logic": f"{SCHEDULING}::test_failed_logic_is_auto_fixed_then_a_new_run",
        "failed:internal": f"{SCHEDULING}::test_failed_internal_leaves_the_workflow_paused",
        "committed": f"{SCHEDULING}::test_committed_is_successfully_completed",
        "crashed":
            f"{SCHEDULING}::test_crashed_is_found_incomplete_and_recovery_creates_a_new_run",
    },
    "16: Phase transitions and checkpoints": {
        "→ prepared":
            f"{CHECKPOINTS}::test_prepared_persists_the_plan_the_reservation_and_the_wake_time",
        "→ mutated": f"{CHECKPOINTS}::test_mutated_persists_the_result_with_the_phase",
        "→ committed": f"{CHECKPOINTS}::test_committed_persists_state_and_consumption",
    },
    "16: Phase Reset Rules": {
        "preparing": f"{_FRESH}[preparing]",
        "prepared": f"{_FRESH}[prepared]",
        "mutating": f"{_FRESH}[mutating]",
        "mutated": f"{_COPIED}[mutated]",
        "emitting": f"{_COPIED}[emitting]",
    },
    "16: Failure Classification and Handling": {
        "Transient (rate limit, timeout)": f"{_FAILURE}[transient]",
        "Logic error (script throws, bad input)": f"{_FAILURE}[logic error]",
        "Auth failure (token expired)": f"{_FAILURE}[auth failure]",
        "Permission denied": f"{_FAILURE}[permission denied]",
        "Mutation indeterminate": f"{_FAILURE}[mutation indeterminate]",
        "Internal error (our bug)": f"{_FAILURE}[internal error]",
    },
    "16: Paused Workflows": {
        "paused:transient": f"{_RESOLVED}[paused:transient]",
        "paused:approval": f"{_RESOLVED}[paused:approval]",
        "paused:reconciliation": f"{_RESOLVED}[paused:reconciliation]",
        "failed:logic": f"{_RESOLVED}[failed:logic]",
        "failed:internal": f"{_RESOLVED}[failed:internal]",
    },
    "16: Run Lifecycle Integration": {
        "committed": f"{SCHEDULING}::test_on_committed_wake_at_is_recorded"
                     "_flags_are_cleared_and_triggers_checked",
        "paused:transient": f"{SCHEDULING}::test_on_paused_transient_a_retry_is_scheduled"
                            "_and_triggers_accumulate",
        "paused:approval": f"{_PAUSED}[paused:approval]",
        "paused:reconciliation": f"{_PAUSED}[paused:reconciliation]",
        "failed:logic":
            f"{SCHEDULING}::test_on_failed_logic_a_fix_is_triggered_and_a_retry_follows_it",
        "failed:internal": f"{_PAUSED}[failed:internal]",
    },
    "16: Observable State": {
        "Status": f"{SCHEDULING}::test_users_see_a_status",
        "Issue description": f"{SCHEDULING}::test_users_see_an_issue_description",
        "Schedule": f"{SCHEDULING}::test_users_see_a_schedule",
        "Recent activity": f"{SCHEDULING}::test_users_see_recent_activity",
        "Pending work": f"{SCHEDULING}::test_users_see_pending_work",
    },
}  # fmt: skip
