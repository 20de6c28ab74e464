"""Why a schedule or an automation ran, waits or did not run."""
