"""Pipeline documents that several tests read."""

from __future__ import annotations

WHOLE = """
name: Every kind
parameters: {topic: tea}
settings: {model: small, parallel: 3, onError: warn}
nodes:
  commits:
    kind: script
    run: git log --oneline -5
    output: text
  rows:
    kind: load
    source: {type: csv, path: rows.csv, delimiter: ";"}
    limit: 10
  kept:
    kind: filter
    from: [rows]
    rule:
      type: and
      rules:
        - {type: field, field: size, op: gt, value: 3}
        - {type: not, rule: {type: field, field: name, op: matches, pattern: "^x"}}
        - {type: ai, prompt: "Is {{name}} nice?"}
  looked:
    kind: map
    from: kept
    prompt: "Look at {{name}}"
    output: [verdict, {name: score, type: integer}]
  both:
    kind: merge
    from: [looked, commits]
  plain:
    kind: transform
    from: [both]
    ops:
      - {op: select, fields: [name, verdict]}
      - {op: rename, from: name, to: title}
      - {op: add, field: about, value: "{{title}} of {{topic}}"}
      - {op: drop, fields: [verdict]}
  listed:
    kind: reduce
    from: [plain]
    type: text
  said:
    kind: ai
    from: [plain]
    prompt: "Sum up {{ITEMS}}"
"""


DAILY = """
name: "Daily Bug Report"
schedule:
  cron: "0 9 * * *"
  timezone: "America/New_York"

input:
  from: { type: csv, path: "bugs.csv" }
map:
  prompt: "Categorize: {{title}}"
  output: [severity, category]
reduce:
  type: json
"""


WEEKLY = """
name: "Weekly Data Sync"
schedule:
  cron: "0 0 * * 0"
  retryPolicy:
    maxRetries: 5
    retryDelayMs: 300000  # 5 minutes

input:
  from: { type: csv, path: "sync-targets.csv" }
map:
  prompt: "Sync {{endpoint}}"
  output: [status, records_synced]
reduce:
  type: table
"""


QUEUES = """
name: "Queue Monitor"
schedule:
  cron: "*/15 9-17 * * 1-5"  # Every 15 min, 9-5, Mon-Fri
  timezone: "America/Los_Angeles"
  missedExecution: "skip"  # Don't catch up on missed checks

input:
  items:
    - queue: "high-priority"
    - queue: "standard"
map:
  prompt: "Check queue {{queue}} depth"
  output: [depth, oldest_message_age]
reduce:
  type: json
"""


FULL = """
name: "Daily Bug Report"
description: "Generate daily bug triage report"

# New: Schedule configuration
schedule:
  cron: "0 9 * * 1-5"           # 9 AM on weekdays
  timezone: "America/New_York"   # IANA timezone (optional, defaults to system)
  enabled: true                  # Can disable without removing config

  # Error handling
  retryPolicy:
    maxRetries: 3                # Retry failed executions (default: 3)
    retryDelayMs: 60000          # Delay between retries (default: 1 min)

  # Missed execution handling
  missedExecution: "run"         # "run" | "skip" (default: "run")

  # Execution window (optional)
  window:
    maxDelayMinutes: 30          # Skip if more than 30 min late

# Existing pipeline config
input:
  from:
    type: csv
    path: "bugs.csv"

map:
  prompt: "Analyze bug: {{title}}"
  output: [severity, category]

reduce:
  type: json
"""


LATER = """
name: Later
schedule:
  cron: "0 9 * * *"
  after: "data-fetch"  # Wait for data-fetch to complete first
  condition:
    file_exists: "input/data.csv"
  notify:
    on_failure: "https://hooks.example.com/services/1"
input: { items: [{ a: 1 }] }
map: { prompt: "{{a}}" }
reduce: { type: text }
"""
