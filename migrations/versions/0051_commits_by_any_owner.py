"""What 0041 is now, where it ran as it was: functions that set a parameter of ours at their head, as only a superuser
may make them. A dump of them could not be restored by anybody else.

Locks: none.

Revision ID: 0051
"""

import runpy
from pathlib import Path

from alembic import op

revision = "0051"
down_revision = "0050"
branch_labels = None
depends_on = None

STAGING = runpy.run_path(str(Path(__file__).with_name("0041_staged_writes.py")))["STAGING"]


def upgrade() -> None:
    for function in STAGING:
        if any(f"FUNCTION holdfast.{name}(" in function for name in ("commit_stages", "drop_stages")):
            op.execute(function.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))


def downgrade() -> None:
    """They do the same."""
