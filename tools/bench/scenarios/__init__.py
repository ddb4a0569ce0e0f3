"""Nine scenarios of trouble, by the names that hardbyte's benchmark of job queues on PostgreSQL has for them: a steady
load, a fault or a pressure, and how much of the rate is there again afterwards."""
