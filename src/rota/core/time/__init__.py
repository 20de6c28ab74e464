"""Time: instants, cron, phrases, zones, daylight saving, occurrences. Pure."""
