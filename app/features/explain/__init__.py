"""Why a job is not running, and what a queue looked like earlier."""
