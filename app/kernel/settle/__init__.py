"""How deliveries end, and jobs."""
