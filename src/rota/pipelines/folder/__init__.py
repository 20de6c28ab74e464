"""A folder of pipelines on their schedules: lock, state files, watching, events."""
