"""A folder of pipelines on its schedules."""
